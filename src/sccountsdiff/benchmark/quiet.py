"""Silence around methods of all kinds: what they warn of is settled by the comparison."""

from __future__ import annotations

from functools import partial

from sccountsdiff.quiet import quiet as quiet_libraries

quiet = partial(quiet_libraries, all_warnings=True)
