# Handles each delivery of Ackbox once, in the receiver's own database: to copy. Python 3.9 or newer, with any DB-API driver whose
# placeholder is %s (psycopg, PyMySQL, mysqlclient). The tables: npx ackbox consumer --print-ddl postgres|mysql
import base64
import hashlib
import hmac
import json
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone

TOLERANCE_S = 300


class Retry(Exception):
    """Not now: answered 503, with Retry-After."""

    def __init__(self, after_s=1):
        super().__init__(f"again in {after_s} s")
        self.after_s = after_s


class Refuse(Exception):
    """Never: answered 410. The delivery ends FAILED, with an alarm; operators read the reason."""


class Receiver:
    """`connect()` opens a connection without autocommit; `secrets` are two during a rotation."""

    def __init__(self, connect, dialect, consumer, secrets, ackbox_url, deadline_s=8):
        self.connect, self.dialect, self.consumer = connect, dialect, consumer
        self.keys = [base64.b64decode(secret.removeprefix("whsec_")) for secret in secrets]
        self.callback_url = ackbox_url.rstrip("/") + "/callback"
        self.deadline_s = deadline_s

    def verify(self, headers, body, tolerance_s=TOLERANCE_S):
        """Standard Webhooks: HMAC-SHA256 over id.timestamp.body, the very bytes. None of this asks the database."""
        webhook_id, timestamp = headers.get("webhook-id"), headers.get("webhook-timestamp") or ""
        if not webhook_id or not (timestamp.isascii() and timestamp.isdigit()):
            return False
        if abs(time.time() - int(timestamp)) > tolerance_s:
            return False
        given = (headers.get("webhook-signature") or "").split(" ")
        for key in self.keys:
            digest = hmac.new(key, f"{webhook_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
            right = "v1," + base64.b64encode(digest).decode()
            if any(hmac.compare_digest(each.encode(), right.encode()) for each in given):
                return True
        return False

    def once(self, cursor, headers, body, work, wants_receipt=lambda: True):
        """Inside a transaction: (True, result) for the first, (False, the stored result) for a repeat, which waits for the first's end."""
        key = (self.consumer, headers["webhook-id"])
        first = self._insert(cursor, key, headers)
        if first:
            result = work(cursor, json.loads(body))
            stored = json.dumps(result)
            cursor.execute("update ackbox_received set result = %s where consumer = %s and webhook_id = %s", (stored, *key))
        else:
            # A locking read sees what was committed after this transaction began; shared: two repeats would deadlock.
            lock = " lock in share mode" if self.dialect == "mysql" else ""
            cursor.execute("select result, forget_after from ackbox_received where consumer = %s and webhook_id = %s" + lock, key)
            stored, forget_after = cursor.fetchone()
            result = json.loads(stored) if stored else None
            if forget_after < self._forget_after(headers):  # an operator delivers it again
                cursor.execute("update ackbox_received set forget_after = %s where consumer = %s and webhook_id = %s", (self._forget_after(headers), *key))
        token = headers.get("ackbox-callback-token")
        if token and wants_receipt():
            self._write_receipt(cursor, headers, {"result": "HANDLED"})
        return first, result

    def answer(self, headers, body, work):
        """(status, headers, text) of an HTTP request. A 2xx with ackbox-result always follows the commit."""
        if not self.verify(headers, body):
            return 401, {}, ""
        state = {"early": 0, "decided": False}
        lock = threading.Lock()

        def wants_receipt():
            with lock:
                state["decided"] = not state["early"]
            return state["early"] == 202

        done = []
        thread = threading.Thread(target=lambda: done.append(self._transact(headers, body, work, wants_receipt, state)))
        thread.start()
        thread.join(self.deadline_s)
        with lock:
            if thread.is_alive() and not state["decided"]:
                state["early"] = 202 if headers.get("ackbox-callback-token") else 503
                return (202, {}, "{}") if state["early"] == 202 else (503, {"retry-after": "1"}, "")
        thread.join()
        return done[0]

    def _transact(self, headers, body, work, wants_receipt, state):
        connection = self.connect()
        try:
            try:
                _, result = self.once(connection.cursor(), headers, body, work, wants_receipt)
                connection.commit()
                return 200, {"content-type": "application/json", "ackbox-result": "HANDLED"}, json.dumps({} if result is None else result)
            except Exception as error:
                connection.rollback()
                return self._failed(connection, error, headers, state)
        finally:
            connection.close()

    def _failed(self, connection, error, headers, state):
        if isinstance(error, Refuse):
            answer, receipt = (410, {}, json.dumps({"reason": str(error)})), {"result": "FAILED", "reason": str(error)}
        else:
            after = error.after_s if isinstance(error, Retry) else 1
            answer = (503, {"retry-after": str(after)}, "") if isinstance(error, Retry) or is_busy(error) else (500, {}, "")
            receipt = {"result": "RETRY"}
            if answer[0] == 500:
                print("ackbox_receiver:", headers.get("ackbox-task-no"), repr(error), flush=True)
        if state["early"] == 202:  # the receipt tells what the answer would have
            self._write_receipt(connection.cursor(), headers, receipt)
            connection.commit()
        return answer

    def _insert(self, cursor, key, headers):
        columns = "insert into ackbox_received (consumer, webhook_id, task_no, forget_after) values (%s, %s, %s, %s)"
        values = (*key, headers.get("ackbox-task-no", ""), self._forget_after(headers))
        if self.dialect == "postgres":
            cursor.execute(columns + " on conflict do nothing", values)
            return cursor.rowcount == 1
        try:
            cursor.execute(columns, values)
            return True
        except Exception as error:
            if error.args[:1] != (1062,):  # a duplicate key alone is a repeat
                raise
            return False

    def _forget_after(self, headers):
        given = headers.get("ackbox-forget-after")
        at = datetime.fromisoformat(given.replace("Z", "+00:00")) if given else datetime.now(timezone.utc) + timedelta(days=30)
        return at if self.dialect == "postgres" else at.replace(tzinfo=None)

    def _write_receipt(self, cursor, headers, receipt):
        text = json.dumps({"taskNo": headers["ackbox-task-no"], "messageCode": headers["ackbox-message-code"], **receipt})
        cursor.execute(
            "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt) values (%s, %s, %s, %s)",
            (self.consumer, self.callback_url, headers["ackbox-callback-token"], text),
        )

    def run(self, stop):
        """Sends receipts until the threading.Event `stop` is set. Any number of processes may run it."""
        while not stop.wait(0.2):
            try:
                while self._send_due():
                    pass
            except Exception as error:
                print("ackbox_receiver:", repr(error), flush=True)

    def _send_due(self):
        now = "clock_timestamp()" if self.dialect == "postgres" else "utc_timestamp(6)"
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(
                f"select id, callback_token, receipt, tries from ackbox_receipt_outbox where consumer = %s and next_try_at <= {now}"
                " order by next_try_at limit 1 for update skip locked",
                (self.consumer,),
            )
            row = cursor.fetchone()
            if row is None:
                return False
            # While it is sent the row is locked: nobody else sends it.
            receipt_id, token, receipt, tries = row
            if self._post(token, receipt):
                cursor.execute("delete from ackbox_receipt_outbox where id = %s", (receipt_id,))
            else:
                pause = min(60, 0.25 * 2 ** min(tries, 10))
                later = f"{now} + %s * interval '1 second'" if self.dialect == "postgres" else f"{now} + interval %s second"
                cursor.execute(f"update ackbox_receipt_outbox set tries = tries + 1, next_try_at = {later} where id = %s", (pause, receipt_id))
            connection.commit()
            return True
        finally:
            connection.close()

    def _post(self, token, receipt):
        headers = {"content-type": "application/json", "ackbox-callback-token": token}
        request = urllib.request.Request(self.callback_url, data=receipt.encode(), headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except urllib.error.HTTPError as error:
            return error.code < 500 and error.code != 429  # refused for good: Ackbox will never take it
        except OSError:
            return False

    def prune(self):
        """Once a day. Ackbox sends nothing after forget_after; a day more, for clocks that differ."""
        old = "now() - interval '1 day'" if self.dialect == "postgres" else "utc_timestamp() - interval 1 day"
        connection = self.connect()
        try:
            connection.cursor().execute(f"delete from ackbox_received where consumer = %s and forget_after < {old}", (self.consumer,))
            connection.commit()
        finally:
            connection.close()


def is_busy(error):
    """A deadlock, a failed serialization, a lock that was waited for too long: rolled back, and worth another try."""
    return getattr(error, "sqlstate", None) in ("40001", "40P01", "55P03") or error.args[:1] in ((1205,), (1213,))
