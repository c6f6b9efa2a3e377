"""`python -m slipstream` is `slipstream`."""

from slipstream.cli import main

main()
