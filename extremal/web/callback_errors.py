"""No traceback reaches a page: whatever goes wrong in a callback becomes a sentence."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from dash.exceptions import PreventUpdate

from extremal.web.answer_pool import Superseded

_log = logging.getLogger(__name__)
# What a page says where the fault is ours; the log has the details.
INTERNAL_ERROR_SENTENCE = (
    "Something went wrong here; the server's log says what ({kind}). The page still works."
)


def errors_as_text(
    failed: Callable[[str], Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have a callback return `failed(message)` where it raises.

    A ValueError is about what was asked for, and is shown as it stands. Any other error is ours:
    it is logged, and the page says so. An answer that nobody waits for updates nothing.
    """

    def decorate(callback: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(callback)
        def guarded_callback(*values: Any) -> Any:
            try:
                return callback(*values)
            except PreventUpdate:
                raise
            except Superseded:
                raise PreventUpdate from None
            except ValueError as error:
                return failed(str(error))
            except Exception as error:
                _log.exception("a callback of the explorer failed")
                return failed(INTERNAL_ERROR_SENTENCE.format(kind=type(error).__name__))

        return guarded_callback

    return decorate
