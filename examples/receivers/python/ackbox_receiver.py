# Handles each delivery of Ackbox once, in the receiver's own database. A file to copy. It needs Python 3.9 or newer, with any DB-API driver
# whose placeholder is %s (psycopg, PyMySQL, mysqlclient). The tables: npx ackbox consumer --print-ddl postgres|mysql
import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import math
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

TOLERANCE_S = 300
# Longer than it takes to send a receipt: after it, the process that claimed the receipt has died.
LEASE_S = 30
# The result of a row while its work runs. It is unique, so no row of another transaction has the same.
UNFINISHED = '"unfinished %s"'

# A deadlock, or a failed serialization (1020 of MariaDB is one).
CONFLICTS = ("40001", "40P01", 1020, 1213)

# With these codes Ackbox refuses a receipt for good: a wrong or old token, a removed or deleted task, an invalid receipt.
REFUSED = (
    "BAD_TOKEN TASK_NOT_FOUND TASK_DELETED INVALID WRONG_CODE WRONG_DOWNSTREAM TOO_LARGE DATA_TOO_LARGE "
    "NOT_JSON NOT_UTF8 NOT_I_JSON TOO_DEEP TOO_MANY_MEMBERS"
).split()


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are not followed: the token of a receipt is only for Ackbox."""

    def redirect_request(self, *_):
        return None


no_redirects = urllib.request.build_opener(NoRedirects)


def member_of(text, name):
    """A text member of a JSON answer, else None. A gateway, or another path, answers with another body. The receipt must not be lost because of it."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    member = value.get(name) if isinstance(value, dict) else None
    return member if isinstance(member, str) else None


class Retry(Exception):
    """
    Not now: answered 503, with Retry-After in whole seconds, at most an hour, the longest that Ackbox waits. After a 202 the backoff of the
    handler alone counts: a receipt has no time.
    """

    def __init__(self, after_s=1):
        super().__init__(f"again in {after_s} s")
        self.after_s = math.ceil(min(max(after_s, 0), 3_600))


class Refuse(Exception):
    """Never: answered 410. The delivery ends FAILED, with an alarm that shows the reason to operators."""


class NotTaken(Exception):
    """Raised by `once` before any statement: not from Ackbox, or so old that its row may be pruned."""


class Task:
    """
    What the work gets. Only the id, the time and the body are signed. `round`: 1, and one more after each redelivery by an operator. `text`: the
    body as it was sent; `body` is its JSON.
    """

    def __init__(self, headers, body):
        self.headers = headers
        self.webhook_id = headers["webhook-id"]
        self.task_no = headers.get("ackbox-task-no") or ""
        self.message_code = headers.get("ackbox-message-code") or ""
        self.scene_type = urllib.parse.unquote(headers.get("ackbox-scene-type") or "")
        self.attempt = number(headers.get("ackbox-attempt"))
        self.round = number(headers.get("ackbox-round"))
        self.text = body.decode()

    @property
    def body(self):
        return json.loads(self.text)


def number(text):
    return int(text) if re.fullmatch("[0-9]{1,9}", text or "") else 1


class Receiver:
    """
    `connect()` gives a connection without autocommit, and `release(connection)` takes it back; by default it is closed. With a pool these are
    its two methods: `Receiver(pool.getconn, …, release=pool.putconn)`. `secrets` are two during a rotation. `max_age_s`: the greatest age of a
    message that `once` takes, by its signed time. Its row is kept for as long. So nobody who may write to the queue can make it count again.
    """

    def __init__(self, connect, dialect, consumer, secrets, ackbox_url, deadline_s=8, release=lambda connection: connection.close(), max_age_s=None):
        self.connect, self.release, self.dialect, self.consumer = connect, release, dialect, consumer
        self.keys = [key_of(secret) for secret in secrets]
        if not self.keys:
            raise ValueError("a secret is needed: `npx ackbox key secret DOWNSTREAM` prints it")
        self.callback_url = ackbox_url.rstrip("/") + "/callback"
        self.deadline_s = deadline_s
        self.max_age_s = max_age_s

    @contextlib.contextmanager
    def _connection(self):
        connection = self.connect()
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(Exception):  # a lost connection
                connection.rollback()
            raise
        finally:
            self.release(connection)

    def verify(self, headers, body, tolerance_s=TOLERANCE_S):
        """Standard Webhooks: HMAC-SHA256 over id.timestamp.body, byte for byte. `tolerance_s` None: any age. Without the database."""
        webhook_id, timestamp = headers.get("webhook-id") or "", headers.get("webhook-timestamp") or ""
        # With a dot in the id, the id could hold the time, and the time a part of the body.
        if not re.fullmatch("[A-Za-z0-9_-]+", webhook_id) or not re.fullmatch("[0-9]{1,12}", timestamp):
            return False
        if tolerance_s is not None and abs(time.time() - int(timestamp)) > tolerance_s:
            return False
        given = (headers.get("webhook-signature") or "").split(" ")
        for key in self.keys:
            digest = hmac.new(key, f"{webhook_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
            right = "v1," + base64.b64encode(digest).decode()
            if any(hmac.compare_digest(each.encode(), right.encode()) for each in given):
                return True
        return False

    def once(self, cursor, headers, body, work, wants_receipt=lambda: True):
        """
        For a message of a queue, inside a transaction: (True, result) for the first, (False, stored result) for a repeat. A repeat waits
        until the first has ended. Acknowledge the message after the commit, also a repeat. Raises NotTaken before any statement.
        """
        # It may have waited in the queue for long: its age is checked by ackbox-forget-after instead.
        if not self.verify(headers, body, tolerance_s=None):
            raise NotTaken("its signature is not Ackbox's")
        if asked_about(headers) is not None:
            raise NotTaken("it is a probe and no delivery: only `answer` takes it")
        if self.max_age_s is not None and time.time() > int(headers["webhook-timestamp"]) + self.max_age_s:
            raise NotTaken("it was sent more than max_age_s ago")
        # `prune` waits for a day, by the clock of the database: the two clocks may differ by half a day.
        if datetime.now(timezone.utc) > self._forget_at(headers) + timedelta(hours=12):
            raise NotTaken("it is too old: whether it was handled may be forgotten")
        return self._once(cursor, headers, body, work, wants_receipt)

    def _once(self, cursor, headers, body, work, wants_receipt):
        if not is_in_transaction(cursor.connection):
            raise RuntimeError("no transaction: the row would be committed by itself, whatever becomes of the work")
        key = (self.consumer, headers["webhook-id"])
        mark = UNFINISHED % uuid.uuid4()
        first = self._insert(cursor, key, headers, mark)
        if first:
            try:
                result = work(cursor, Task(headers, body))
                # In MySQL a deadlock ends the transaction: a work that swallows the error continues in another transaction unnoticed.
                if not self._has_mark(cursor, key, mark):
                    raise RuntimeError("the database has ended this transaction while the work went on: its error must end the work")
            except BaseException:
                self._take_back(cursor, key, mark)
                raise
            stored = json.dumps(result)
            result = json.loads(stored)  # as repeats have it: a tuple is a list
            cursor.execute("update ackbox_received set result = %s where consumer = %s and webhook_id = %s", (stored, *key))
        else:
            # A locking read sees rows that were committed after this transaction began. It is shared, since two repeats would deadlock.
            lock = " lock in share mode" if self.dialect == "mysql" else ""
            cursor.execute("select result, forget_after from ackbox_received where consumer = %s and webhook_id = %s" + lock, key)
            stored, forget_after = cursor.fetchone()
            result = json.loads(stored) if stored and not re.fullmatch(UNFINISHED % "[0-9a-f-]{36}", stored) else None
            if forget_after < self._forget_after(headers):  # an operator delivers it again
                cursor.execute("update ackbox_received set forget_after = %s where consumer = %s and webhook_id = %s", (self._forget_after(headers), *key))
        token = headers.get("ackbox-callback-token")
        if token and wants_receipt():
            self._write_receipt(cursor, headers, {"result": "HANDLED"})
        return first, result

    def answer(self, headers, body, work):
        """The answer to an HTTP request: (status, headers, text). A 2xx with ackbox-result always follows the commit."""
        if not self.verify(headers, body):
            return 401, {}, ""
        asked = asked_about(headers)
        if asked is not None:
            return self._answer_probe(asked)
        state = {"early": 0, "decided": False}
        lock = threading.Lock()

        def wants_receipt():
            with lock:
                state["decided"] = not state["early"]
            return state["early"] == 202

        done = []

        def transact():
            try:
                done.append(self._transact(headers, body, work, wants_receipt))
            except BaseException as error:  # the database is not reachable: Ackbox sends it again
                print("ackbox_receiver:", headers.get("ackbox-task-no"), repr(error), flush=True)
                done.append((503, {"retry-after": "1"}, ""))

        thread = threading.Thread(target=transact)
        thread.start()
        thread.join(self.deadline_s)
        with lock:
            if thread.is_alive() and not state["decided"]:
                state["early"] = 202 if headers.get("ackbox-callback-token") else 503
                return (202, {}, "{}") if state["early"] == 202 else (503, {"retry-after": "1"}, "")
        thread.join()
        return done[0]

    def _answer_probe(self, webhook_id):
        try:
            with self._connection() as connection:
                cursor = connection.cursor()
                cursor.execute("select 1 from ackbox_received where consumer = %s and webhook_id = %s", (self.consumer, webhook_id))
                is_handled = cursor.fetchone() is not None
                connection.commit()
        except Exception as error:  # no answer, for Ackbox
            print("ackbox_receiver:", repr(error), flush=True)
            return 503, {}, ""
        return 200 if is_handled else 404, {"content-type": "application/json"}, json.dumps({"handled": is_handled})

    def _transact(self, headers, body, work, wants_receipt):
        with self._connection() as connection:
            try:
                _, result = self._once(connection.cursor(), headers, body, work, wants_receipt)
                connection.commit()
                return 200, {"content-type": "application/json", "ackbox-result": "HANDLED"}, json.dumps({} if result is None else result)
            except Exception as error:
                connection.rollback()
                return self._failed(connection, error, headers, wants_receipt)

    def _failed(self, connection, error, headers, wants_receipt):
        if isinstance(error, Refuse):
            answer, receipt = (410, {}, json.dumps({"reason": str(error)})), {"result": "FAILED", "reason": shortened(str(error))}
        else:
            after = error.after_s if isinstance(error, Retry) else 1
            answer = (503, {"retry-after": str(after)}, "") if isinstance(error, Retry) or is_busy(error) else (500, {}, "")
            receipt = {"result": "RETRY"}
            if answer[0] == 500:
                print("ackbox_receiver:", headers.get("ackbox-task-no"), repr(error), flush=True)
        if wants_receipt():  # the receipt has the result that the answer would have had
            self._write_receipt(connection.cursor(), headers, receipt)
            connection.commit()
        return answer

    def _insert(self, cursor, key, headers, mark):
        columns = "insert into ackbox_received (consumer, webhook_id, task_no, forget_after, result) values (%s, %s, %s, %s, %s)"
        values = (*key, headers.get("ackbox-task-no", ""), self._forget_after(headers), mark)
        if self.dialect == "postgres":
            cursor.execute(columns + " on conflict do nothing", values)
            return cursor.rowcount == 1
        try:
            cursor.execute(columns, values)
            return True
        except Exception as error:
            if error.args[:1] != (1062,):  # only a duplicate key is a repeat
                raise
            return False

    def _has_mark(self, cursor, key, mark):
        cursor.execute("select 1 from ackbox_received where consumer = %s and webhook_id = %s and result = %s", (*key, mark))
        return cursor.fetchone() is not None

    def _take_back(self, cursor, key, mark):
        """The work raised. If its transaction is committed anyway, the delivery must still be retried."""
        try:
            # A read without a lock: if the transaction is over, another one may have the row by now.
            if self._has_mark(cursor, key, mark):
                cursor.execute("delete from ackbox_received where consumer = %s and webhook_id = %s", key)
        except Exception:
            pass  # the error of the work has ended the transaction: it will not be committed

    def _forget_after(self, headers):
        at = self._forget_at(headers)
        if self.max_age_s is not None:
            # The header is not signed: it must not end the row of a message that would still be taken.
            at = max(at, datetime.fromtimestamp(int(headers["webhook-timestamp"]) + self.max_age_s, timezone.utc))
        return at if self.dialect == "postgres" else at.replace(tzinfo=None)

    def _forget_at(self, headers):
        try:
            return datetime.fromisoformat(headers.get("ackbox-forget-after", "").replace("Z", "+00:00")).astimezone(timezone.utc)
        except ValueError:
            return datetime.now(timezone.utc) + timedelta(days=30)

    def _write_receipt(self, cursor, headers, receipt):
        text = json.dumps({"taskNo": headers["ackbox-task-no"], "messageCode": headers["ackbox-message-code"], **receipt})
        cursor.execute(
            "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt) values (%s, %s, %s, %s)",
            (self.consumer, self.callback_url, headers["ackbox-callback-token"], text),
        )

    def run(self, stop):
        """Sends receipts until the threading.Event `stop` is set. Several processes may run it."""
        failures, pause_s = 0, 0.2
        while not stop.wait(pause_s):
            try:
                while not stop.is_set() and self._send_due():
                    failures = 0
                failures, pause_s = 0, 0.2
            except Exception as error:
                # Of failures in a row the 1st, 10th, 100th are told: the database may be away for hours.
                failures += 1
                if re.fullmatch("10*", str(failures)):
                    print("ackbox_receiver:", repr(error), flush=True)
                pause_s = min(30, 0.2 * 2 ** min(failures, 10))

    def _send_due(self):
        due = self._claim()
        if due is None:
            return False
        receipt_id, token, receipt, tries = due
        problem = self._post(token, receipt)
        # Every tenth failure is told: Ackbox may only be restarting, and a wrong address must not stay unnoticed.
        if problem is not None and (tries + 1) % 10 == 0:
            print("ackbox_receiver:", problem, flush=True)
        with self._connection() as connection:
            cursor = connection.cursor()
            if problem is None:
                cursor.execute("delete from ackbox_receipt_outbox where id = %s", (receipt_id,))
            else:
                self._put_off(cursor, receipt_id, tries + 1, min(60, 0.25 * 2 ** min(tries, 10)))
            connection.commit()
        return True

    def _claim(self):
        """Claims the receipt that is due first, for LEASE_S. None: no receipt is due, or others have claimed them."""
        of = "select id, callback_token, receipt, tries from ackbox_receipt_outbox"
        due = f"where consumer = %s and next_try_at <= {self._now()} order by next_try_at limit"
        try:
            with self._connection() as connection:
                row = self._claim_with(connection.cursor(), of, due)
                connection.commit()
                return row
        except Exception as error:
            # Two claims at the same time can conflict. The next claim is soon enough.
            if has_code(error, CONFLICTS):
                return None
            raise

    def _claim_with(self, cursor, of, due):
        if self.dialect == "postgres":
            cursor.execute(f"{of} {due} 1 for update skip locked", (self.consumer,))
        else:
            # Reads without a lock, then locks by id: a locking read of a small table reads all of it, waits for receipts of open
            # transactions, and blocks other writers. The commit ends the snapshot: MariaDB locks no row that has changed since.
            cursor.execute(f"select id from ackbox_receipt_outbox {due} 10", (self.consumer,))
            ids = ", ".join(str(row[0]) for row in cursor.fetchall())
            cursor.connection.commit()
            if not ids:
                return None
            cursor.execute(f"{of} force index (primary) where id in ({ids}) and next_try_at <= {self._now()} limit 1 for update skip locked")
        row = cursor.fetchone()
        if row is not None:
            self._put_off(cursor, row[0], row[3] + 1, LEASE_S)
        return row

    def _put_off(self, cursor, receipt_id, tries, seconds):
        later = "%s * interval '1 second'" if self.dialect == "postgres" else "interval %s second"
        cursor.execute(f"update ackbox_receipt_outbox set tries = %s, next_try_at = {self._now()} + {later} where id = %s", (tries, seconds, receipt_id))

    def _now(self):
        return "clock_timestamp()" if self.dialect == "postgres" else "utc_timestamp(6)"

    def _post(self, token, receipt):
        """None: it was sent, or Ackbox will never accept it. Otherwise it must be sent again, and this is why."""
        headers = {"content-type": "application/json", "ackbox-callback-token": token}
        request = urllib.request.Request(self.callback_url, data=receipt.encode(), headers=headers)
        try:
            try:
                answer = no_redirects.open(request, timeout=10)
            except urllib.error.HTTPError as error:
                answer = error  # it is an answer, too
            with answer:
                status, text = answer.code, answer.read(65_536)
        except (OSError, http.client.HTTPException) as error:
            return f"the receipt {receipt} was not answered: {error!r}"
        problem = f"the receipt {receipt} was answered {status}: {text[:200].decode(errors='replace')}"
        if status // 100 == 2:
            return problem if member_of(text, "taskNo") is None else None
        if member_of(text, "code") not in REFUSED:
            return problem
        print("ackbox_receiver:", problem, flush=True)
        return None

    def prune(self):
        """
        Call it once a day. Ackbox sends nothing after forget_after; one more day allows for clocks that differ. Receipts are dropped after 90
        days, when their tokens are no longer valid.
        """
        invalid = "now() - interval '90 days'" if self.dialect == "postgres" else "utc_timestamp() - interval 90 day"
        old = "now() - interval '1 day'" if self.dialect == "postgres" else "utc_timestamp() - interval 1 day"
        index = "" if self.dialect == "postgres" else "force index (ackbox_received_forget_idx)"
        with self._connection() as connection:
            cursor = connection.cursor()
            while True:
                # A read without a lock, then a delete by key: else MySQL reads all of a small table, and waits for open transactions.
                cursor.execute(f"select consumer, webhook_id from ackbox_received {index} where consumer = %s and forget_after < {old} limit 1000", (self.consumer,))
                keys = cursor.fetchall()
                connection.commit()  # ends the snapshot: MariaDB deletes no row that has changed since
                if not keys:
                    break
                cursor.executemany(f"delete from ackbox_received where consumer = %s and webhook_id = %s and forget_after < {old}", keys)
                connection.commit()
            cursor.execute(f"select id from ackbox_receipt_outbox where consumer = %s and created_at < {invalid}", (self.consumer,))
            ids = cursor.fetchall()
            connection.commit()
            cursor.executemany("delete from ackbox_receipt_outbox where id = %s", ids)
            connection.commit()


def key_of(secret):
    # With an empty key anyone could sign. The error never contains the secret.
    try:
        text = secret.removeprefix("whsec_")
        is_padded_well = len(text) % 4 == 0 or not text.endswith("=")
        key = base64.b64decode(text + "=" * (-len(text) % 4) if is_padded_well else "", validate=True)
    except (AttributeError, ValueError):
        key = b""
    if len(key) < 24:
        raise ValueError("a secret must be whsec_ and base64 of 24 bytes or more: `npx ackbox key secret DOWNSTREAM` prints it") from None
    return key


def asked_about(headers):
    """For a probe: the webhook-id of the delivery that it asks about, else None. The id counts, and not the header alone: only the id is signed."""
    webhook_id = headers["webhook-id"]
    if not webhook_id.startswith("probe_") and headers.get("ackbox-probe") is None:
        return None
    return re.sub("_[0-9]+$", "", webhook_id.removeprefix("probe_"))


def shortened(reason):
    """Ackbox refuses a receipt whose reason has more than 1,000 characters, counted in UTF-16, or that has NUL or half a surrogate pair."""
    return reason.encode("utf-16-le", "surrogatepass")[:2000].decode("utf-16-le", "ignore").replace("\0", "\ufffd")


def is_in_transaction(connection):
    """Without autocommit the next statement begins a transaction. With autocommit, only psycopg shows whether one is open."""
    # PyMySQL and mysqlclient have a method, psycopg an attribute.
    autocommit = connection.get_autocommit() if hasattr(connection, "get_autocommit") else connection.autocommit
    return not autocommit or getattr(getattr(connection, "info", None), "transaction_status", 0) == 2


def is_busy(error):
    """A conflict or a lock timeout: rolled back, and worth a retry."""
    return has_code(error, (*CONFLICTS, "55P03", 1205))


def has_code(error, codes):
    """Libraries wrap the driver's error."""
    while error is not None:
        if any(code in codes for code in (getattr(error, "sqlstate", None), *error.args[:1])):
            return True
        error = error.__cause__
    return False
