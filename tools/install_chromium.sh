#!/bin/sh
# Debian's Chromium for the explorer's tests, where it is missing and can be had: root and apt.
# Quiet, and never a failure: without it those tests are skipped with a reason.
command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
{ apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; } \
  >/dev/null 2>&1 </dev/null || echo "chromium could not be installed: the tests of the explorer in a browser are skipped"
exit 0
