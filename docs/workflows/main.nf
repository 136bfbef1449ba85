// Train on one file, then impute and normalise many samples:
//
//   nextflow run main.nf --train train.h5ad --samples 'samples/*.h5ad'

params.train = "train.h5ad"
params.samples = "samples/*.h5ad"
params.output = "results"
params.train_options = ""
params.impute_options = ""

process TRAIN {
    publishDir params.output, mode: "copy"

    input:
    path data

    output:
    path "model", emit: model
    path "train.json"

    script:
    """
    sccountsdiff train ${data} model --quiet --json ${params.train_options} > train.json
    """
}

process IMPUTE {
    tag "${sample.baseName}"

    input:
    path sample
    path model

    output:
    path "imputed/${sample.name}"

    script:
    """
    mkdir imputed
    sccountsdiff impute ${sample} ${model} imputed/${sample.name} --quiet ${params.impute_options}
    """
}

process NORMALIZE {
    tag "${sample.baseName}"
    publishDir params.output, mode: "copy", saveAs: { file -> file.tokenize("/").last() }

    input:
    path sample
    path model

    output:
    path "normalized/${sample.name}"

    script:
    """
    mkdir normalized
    sccountsdiff normalize ${sample} ${model} normalized/${sample.name} --quiet
    """
}

workflow {
    TRAIN(Channel.fromPath(params.train, checkIfExists: true))
    model = TRAIN.out.model.first()
    IMPUTE(Channel.fromPath(params.samples, checkIfExists: true), model)
    NORMALIZE(IMPUTE.out, model)
}
