"""``python -m framecap``."""

import sys

from .cli import main

sys.exit(main())
