"""The explorer in the browser: turn p and watch what the neurons learn.

It needs Dash, the extra "explore"; nothing else of the package imports this part but the command
`extremal explore`, and only when it is called.
"""

from extremal.web.server import LOOPBACK, create_app, make, serve

__all__ = ["LOOPBACK", "create_app", "make", "serve"]
