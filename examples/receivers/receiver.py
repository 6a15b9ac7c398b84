# A downstream of Ackbox in Python 3.9 or newer (standard library only): verifies, handles once, sends its receipt.
#   SIGNING_SECRET=whsec_... ACKBOX_URL=http://127.0.0.1:3000 PORT=8080 python3 receiver.py
import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACKBOX_URL = os.environ.get("ACKBOX_URL", "http://127.0.0.1:3000")
KEY = base64.b64decode(os.environ.get("SIGNING_SECRET", "").removeprefix("whsec_"))
if len(KEY) < 24:
    raise SystemExit("set SIGNING_SECRET: npm run key -- secret DOWNSTREAM prints it")
TOLERANCE_S = 300
MAX_BYTES = 1_048_576
# With these codes Ackbox refuses a receipt for good: a wrong or old token, a removed or deleted task, an invalid receipt.
REFUSED = (
    "BAD_TOKEN TASK_NOT_FOUND TASK_DELETED INVALID WRONG_CODE WRONG_DOWNSTREAM TOO_LARGE DATA_TOO_LARGE "
    "NOT_JSON NOT_UTF8 NOT_I_JSON TOO_DEEP TOO_MANY_MEMBERS"
).split()

# In memory for the example. In production: a table with webhook-id as its key, written in the transaction of the work.
handled = set()
one_at_a_time = threading.Lock()


def handle(headers, body):
    print("handled", headers["webhook-id"], headers["ackbox-task-no"], body.decode(), flush=True)


def verify(headers, body):
    """Standard Webhooks: HMAC-SHA256 over id.timestamp.body, byte for byte. One matching signature is enough."""
    webhook_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    # With a dot in the id, the id could hold the time, and the time a part of the body.
    if not re.fullmatch("[A-Za-z0-9_-]+", webhook_id) or not re.fullmatch("[0-9]{1,12}", timestamp):
        return False
    if abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    digest = hmac.new(KEY, f"{webhook_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(each.encode(), expected.encode()) for each in given)


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: the token of a receipt is only for Ackbox."""

    def redirect_request(self, *_):
        return None


no_redirects = urllib.request.build_opener(NoRedirects)


def member_of(answer, name):
    """Only an answer of Ackbox ends a receipt. A gateway answers with another body, also in JSON: then None."""
    try:
        value = json.loads(answer.read(65_536))
    except (ValueError, OSError, http.client.HTTPException):
        return None
    return value.get(name) if isinstance(value, dict) else None


def send_receipt(headers):
    """Repeated until Ackbox accepts it. It uses the configured address: headers are not signed, so a URL in them cannot be trusted."""
    receipt = {
        "taskNo": headers["ackbox-task-no"],
        "messageCode": headers["ackbox-message-code"],
        "result": "HANDLED",
    }
    for tries in range(1, 11):
        request = urllib.request.Request(
            ACKBOX_URL + "/callback",
            data=json.dumps(receipt).encode(),
            headers={
                "content-type": "application/json",
                "ackbox-callback-token": headers["ackbox-callback-token"],
            },
        )
        try:
            with no_redirects.open(request, timeout=5) as answer:
                if member_of(answer, "taskNo"):
                    return
        except urllib.error.HTTPError as error:
            if member_of(error, "code") in REFUSED:
                return print("the receipt of", receipt["taskNo"], "was answered", error.code, file=sys.stderr)
        except (OSError, http.client.HTTPException):
            pass  # Ackbox is not reachable: try again after the wait
        time.sleep(min(30, 0.25 * 2**tries))
    # After the last try: without a receipt in time Ackbox sends the task again, and a new receipt follows.


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        size = int(self.headers.get("content-length", "0"))
        if not 0 <= size <= MAX_BYTES:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(size)
        if not verify(self.headers, body):
            return self.answer(401)
        # A probe asks whether a delivery is handled. Its work must not run.
        asked = re.fullmatch("probe_(.+)_[0-9]+", self.headers["webhook-id"])
        if asked:
            is_handled = asked[1] in handled
            return self.answer(200 if is_handled else 404, json.dumps({"handled": is_handled}))
        # A repeated id was handled before, but our answer or receipt may be lost: answer again, without handling it twice.
        try:
            with one_at_a_time:
                if self.headers["webhook-id"] not in handled:
                    handle(self.headers, body)
                    handled.add(self.headers["webhook-id"])
        except Exception as error:  # any 5xx: Ackbox sends it again
            self.log_error("%s", error)
            return self.answer(500)
        self.answer(200, '{"code":0}')
        if self.headers["ackbox-callback-token"]:
            threading.Thread(target=send_receipt, args=[self.headers], daemon=True).start()

    do_GET = do_PUT = do_PATCH = do_POST

    def answer(self, status, text=""):
        text = text.encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format, *args):
        pass


sys.stdout.reconfigure(encoding="utf-8")  # bodies are UTF-8, even if the terminal is not
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Receiver)
print("listening", server.server_address[1], flush=True)
server.serve_forever()
