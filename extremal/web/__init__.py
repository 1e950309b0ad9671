"""The explorer in the browser: turn p and watch what the neurons learn.

It needs Dash, the extra "explore"; nothing else of the package imports this part but the command
`extremal explore`, and only when it is called.
"""

from extremal.web.server import LOOPBACK_NAMES, create_app, listening_server, serve

__all__ = ["LOOPBACK_NAMES", "create_app", "listening_server", "serve"]
