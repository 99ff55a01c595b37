"""Whether a job was committed, for a driver that asks before it starts one."""

from __future__ import annotations

import os

from . import sink
from .opening import StoreBusyError, open_store
from .options import OptionError, WriteOptions
from .remote import Remote, remote_of


def is_committed(
    path: str | os.PathLike[str], txnid: str, *, lock_timeout: float = 60.0, **connecting: str
) -> bool:
    """Whether a job that writes under ``txnid`` would publish nothing, as it was committed before.

    Spark starts the tasks of such a job all the same, and computes what lies before a shuffle.
    The store may be open in another process, if that takes in what jobs write.

    Args:
        path: the store's directory, or what the job has as ``url``, with what else it has of
            ``user``, ``password``, ``token``, ``token_file``, ``tls_ca``, ``tls_cert``,
            ``tls_key``.
        lock_timeout: seconds to wait for another process that has the store.

    Returns:
        False also where there is no store; of shards True when all of them have the rows.

    Raises:
        StoreBusyError: another process has the store, and does not look into its inbox.
        pyqstore.Error: a server refused, or is not there.
    """
    remote = remote_of(path, connecting)
    if remote is not None:
        return _at_servers(remote, txnid)
    directory = os.path.abspath(path)
    try:
        with open_store(directory, wait_s=0, read_only=True) as store:
            return bool(store.transaction_known(txnid))
    except OptionError:
        return False  # there is no store
    except StoreBusyError:
        options = WriteOptions(path=directory, lock_timeout=lock_timeout)
        return sink.is_known_to_owner(options, (txnid,))


def _at_servers(remote: Remote, txnid: str) -> bool:
    for shard in range(remote.count):
        with remote.client(shard) as client:
            if not client.transaction_known(txnid):
                return False
    return True
