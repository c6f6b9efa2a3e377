"""The ledger: what became of every job and resource, in one file that one process writes.

It is a fold of what the streams say: any part of it may be folded again, in any order, and the result is the same.
The ingress writes down what it takes on; the operator what `jobs.logs` and `jobs.status` tell, and how far it has read.
"""

from slipstream.jobs.ledger.ledger import Ledger, LedgerInUse, LedgerUnavailable, Submission, open_ledger
from slipstream.jobs.ledger.snapshot import JobSnapshot, Rank, ResourceSnapshot, state_of
from slipstream.jobs.ledger.telling import Told

__all__ = [
    "JobSnapshot",
    "Ledger",
    "LedgerInUse",
    "LedgerUnavailable",
    "Rank",
    "ResourceSnapshot",
    "Submission",
    "Told",
    "open_ledger",
    "state_of",
]
