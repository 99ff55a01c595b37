"""The end of what was consumed: where it is, a directory's or servers'."""

from __future__ import annotations

import os

from . import claims
from .remote import remote_of


def end_drain(path: str | os.PathLike[str], queue: str, txnid: str, **connecting: str) -> bool:
    """Remove the rows that a job read with ``drain=true``: what was made of them is safe.

    They lie in the store's directory ``staging`` until then, so that the job can be repeated under
    its ``txnid``.  Afterwards reading under that ``txnid`` is an error.  The store may be open.

    Args:
        path: the store's directory, or what the job had as ``url``, with what else it had of
            ``user``, ``password``, ``token``, ``token_file``, ``tls_ca``, ``tls_cert``,
            ``tls_key``.

    Returns:
        Whether there was something to remove.
    """
    remote = remote_of(path, connecting)
    if remote is not None:
        from . import remote_claims  # which needs Spark

        return remote_claims.end_drain(remote, queue, txnid)
    return claims.end_drain(path, queue, txnid)


def release_claims(path: str | os.PathLike[str], queue: str, **connecting: str) -> int:
    """Give messages back that streaming queries have claimed from ``queue`` and are not done with.

    For queries that are not going to run any more, or have lost their checkpoint: one that starts
    again and asks for a batch that was released fails.  The messages come to the queue's end as new
    ones, with the default exchange and the queue's name as their routing key, without CC and BCC.
    May be repeated when it was interrupted: nothing is lost, and nothing comes twice.

    Args:
        path: the store's directory, or what the queries had as ``url``, with what else they had of
            ``user``, ``password``, ``token``, ``token_file``, ``tls_ca``, ``tls_cert``,
            ``tls_key``.

    Returns:
        How many messages were given back.

    Raises:
        pyqstore.PreconditionFailed: the queue is full and refuses more; the rest stays claimed.
        pyqstore.NotFound: there is no such queue.
        pyqstore.StoreNotFound: there is no store.
        pyqstore.StoreLocked: another process has the store open.
    """
    remote = remote_of(path, connecting)
    if remote is not None:
        from . import remote_claims  # which needs Spark

        return remote_claims.release(remote, queue)
    return claims.release_claims(path, queue)
