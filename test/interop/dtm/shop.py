"""A shop as DTM's users write it: it answers query_prepared from the barrier, and handles the steps of messages behind the barrier."""
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pymysql
from dtmcli import barrier, utils

database = {"host": "127.0.0.1", "port": int(sys.argv[1]), "user": "root", "database": "test"}


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer()

    def answer(self):
        url = urlsplit(self.path)
        said = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        connection = None
        try:
            connection = pymysql.connect(**database)
            cursor = connection.cursor()
            here = barrier.BranchBarrier(said["trans_type"], said["gid"], said["branch_id"], said["op"])
            if url.path == "/query-prepared":
                here.query_prepared(cursor)
            else:
                cents = json.loads(body)["cents"]
                account = url.path.removeprefix("/in/")
                here.call(cursor, lambda c: utils.sqlexec(c, "update account set cents = cents + %d where id = '%s'" % (cents, account)))
            self.reply(200, "SUCCESS")
        except utils.DTMFailureError:
            self.reply(409, "FAILURE")
        except Exception as error:
            self.reply(500, str(error))
        finally:
            if connection is not None:
                connection.close()

    def reply(self, status, result):
        text = json.dumps({"dtm_result": result}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
print("listening", server.server_port, file=sys.stderr, flush=True)
server.serve_forever()
