"""Commands complain in one line, and know which signal has stopped them."""

import os
import signal

import pytest

from sccountsdiff.command import Parser, UsageError, add_general_options, stoppable, whole


def test_a_mistake_is_raised_in_one_line():
    parser = Parser(prog="prog")
    add_general_options(parser, seed=True)
    for given in (["--seed", "-1"], ["--nothing"], ["--see", "1"]):
        with pytest.raises(UsageError, match=r"\(see prog --help\)") as caught:
            parser.parse_args(given)
        assert "\n" not in str(caught.value)
    assert parser.parse_args(["--seed", "4"]).seed == 4


def test_whole_numbers():
    assert whole(0)("0") == 0
    for text in ("0", "1.0", "x", ""):
        with pytest.raises(Exception, match="at least 1"):
            whole(1)(text)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
class TestStoppable:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_the_work_ends_and_the_code_is_known(self, number, code):
        before = signal.getsignal(number)
        with stoppable() as stop:
            assert not stop and stop.code == 0
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
            assert stop and stop.code == code and stop.name == number.name
        assert signal.getsignal(number) is before

    def test_while_lightning_listens_the_first_sigterm_is_left_to_it(self):
        with stoppable() as stop:
            ours = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *given: ours(*given))  # as Lightning does while it trains
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.code == 143
            with pytest.raises(KeyboardInterrupt):  # who asks twice does not want to wait
                os.kill(os.getpid(), signal.SIGTERM)
