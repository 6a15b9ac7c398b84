"""One payment with DTM's own client: from alice to bob and carol, whose accounts are elsewhere. It kills itself at the moment `dies`."""
import json
import os
import signal
import sys

import pymysql
from dtmcli import msg, utils

order = json.loads(sys.argv[1])
dtm, shop, ends, dies = order["dtm"], order["shop"], order.get("ends"), order.get("dies")


def moment(name):
    if dies == name:
        os.kill(os.getpid(), signal.SIGKILL)


def after(call, name):
    def wrapped(*args, **more):
        moment("before " + name)
        result = call(*args, **more)
        moment("after " + name)
        return result

    return wrapped


def pay(cursor):
    moment("before work")
    if ends == "refused":
        raise utils.DTMFailureError("no")
    utils.sqlexec(cursor, "update account set cents = cents - 2 where id = 'alice'")
    if ends == "error":
        raise ValueError("a bug of the shop")
    moment("after work")


gid = order.get("gid") or utils.gen_gid(dtm)
message = msg.Msg(dtm, gid)
message.add({"cents": 1, "text": "né à Zürich, 支付"}, shop + "/in/bob").add({"cents": 1}, shop + "/in/carol?a=b%20c")
for name, value in order.get("options", {}).items():
    setattr(message.trans_base, name, value)
print("gid", gid, flush=True)
if order.get("only") == "submit":
    message.submit()
elif order.get("only") == "prepare":
    message.prepare(shop + "/query-prepared")
else:
    connection = pymysql.connect(host="127.0.0.1", port=order["port"], user="root", database="test")
    message.prepare = after(message.prepare, "prepare")
    message.submit = after(message.submit, "submit")
    connection.commit = after(connection.commit, "commit")
    message.do_and_submit_db(shop + "/query-prepared", connection.cursor(), pay)
