"""Publish and consume one message with an installed pyqstore, away from the source tree."""

import os
import sys
import tempfile
from pathlib import Path


def main() -> None:
    tree = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path[:] = [entry for entry in sys.path if tree not in (Path(entry), Path(entry).parent)]
        import pyqstore
        import pyqstore.codec

        with pyqstore.open("try.qs") as store, store.channel() as channel:
            channel.queue_declare("try", durable=True)
            channel.confirm_select()
            channel.basic_publish("", "try", b"hello", pyqstore.Properties(delivery_mode=2))
            assert channel.wait_for_confirms(timeout=30)
        with pyqstore.open("try.qs") as store, store.channel() as channel:
            message = channel.basic_get("try")
            assert message is not None
            assert message.body == b"hello"
            channel.basic_ack(message.delivery_tag)
        assert not Path(pyqstore.__file__).is_relative_to(tree / "pyqstore"), pyqstore.__file__
    print(f"published and consumed with {pyqstore.__file__}")


if __name__ == "__main__":
    main()
