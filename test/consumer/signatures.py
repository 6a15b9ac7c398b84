# Prints for each vector of signatures.json, and then for each secret of the arguments, whether ackbox_receiver.py takes it.
import json
import os
import sys

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../examples/receivers/python"))
from ackbox_receiver import Receiver  # noqa: E402

with open(os.path.join(here, "signatures.json"), encoding="utf-8") as file:
    given = json.load(file)


def receiver(secret):
    return Receiver(None, "postgres", "points", [secret], "http://127.0.0.1:1")


points = receiver(given["secret"])
for one in given["vectors"]:
    headers = {"webhook-id": one["id"], "webhook-timestamp": one["timestamp"], "webhook-signature": one["signature"]}
    print(points.verify(headers, one["body"].encode(), tolerance_s=None))
for secret in sys.argv[1:]:
    try:
        receiver(secret)
        print(True)
    except ValueError:
        print(False)
