"""A consumer of orders as a plain HTTP handler, for "redrive worker".

    python3 orders.py PORT EFFECTS

Each order that is shipped is one line in the file EFFECTS: its idempotency key
and its number. The file is read at the start, so a key that is there already is
a duplicate, also after a crash. Only the standard library is needed.

The field "fault" of an order makes it fail, in one way for each failure class.
While the file EFFECTS.down exists, the warehouse is down. PORT 0 takes a free
one; the first line of output is the port.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, EFFECTS = int(sys.argv[1]), sys.argv[2]
lock = threading.Lock()
shipped = {}
if os.path.exists(EFFECTS):
    with open(EFFECTS, encoding="utf-8") as f:
        shipped = dict(line.split() for line in f if line.endswith("\n"))


def ship(key, order):
    """Ships an order once for its key, and says whether this was the time."""
    with lock:
        if key in shipped:
            return False
        with open(EFFECTS, "a", encoding="utf-8") as f:
            f.write(f"{key} {order}\n")
            f.flush()
            os.fsync(f.fileno())
        shipped[key] = str(order)
        return True


def handle(headers, body):
    """Returns the status, the headers and the JSON of the answer."""
    run = int(headers["X-Redrive-Run"])
    order = json.loads(body)
    fault = order.get("fault", "")
    if fault == "unknown_sku":
        return 404, {}, {"reason": "unknown_sku", "detail": f"no article {order['sku']}"}
    if fault == "db_conflict" and run <= 2:
        return 500, {}, {"code": "40001", "detail": "could not serialize access"}
    if fault == "timeout":
        time.sleep(order["sleep"])
        return 504, {}, {"reason": "downstream_timeout"}
    if fault == "rejected":
        return 422, {}, {"class": "business_rejection", "reason": "blocked_customer"}
    if fault == "defect":
        raise ValueError("this version knows no such order")
    if fault == "killer":
        os._exit(9)
    if os.path.exists(EFFECTS + ".down"):
        return 503, {"Retry-After": "1"}, {"reason": "warehouse_down"}
    if not ship(headers["Idempotency-Key"], order["order"]):
        return 409, {}, {"reference": f"shipment {order['order']}"}
    return 201, {}, {"reference": f"shipment {order['order']}"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            status, more, answer = handle(self.headers, body)
        except Exception as e:  # whatever it is, the worker is told
            status, more, answer = 500, {}, {"class": "consumer_defect", "reason": type(e).__name__, "detail": str(e)}
        text = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print(server.server_port, flush=True)
server.serve_forever()
