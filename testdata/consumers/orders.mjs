// A consumer of orders as a plain HTTP handler, for "redrive worker".
//
//     node orders.mjs PORT EFFECTS
//
// Each order that is shipped is one line in the file EFFECTS: its idempotency
// key and its number. The file is read at the start, so a key that is there
// already is a duplicate, also after a crash. Only Node itself is needed.
//
// The field "fault" of an order makes it fail, in one way for each failure
// class. While the file EFFECTS.down exists, the warehouse is down. PORT 0
// takes a free one; the first line of output is the port.

import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { createServer } from "node:http";

const [port, effects] = process.argv.slice(2);
const shipped = new Set(
  (existsSync(effects) ? readFileSync(effects, "utf8") : "").split("\n").slice(0, -1).map((line) => line.split(" ")[0]),
);

// ship ships an order once for its key, and says whether this was the time.
function ship(key, order) {
  if (shipped.has(key)) return false;
  const file = openSync(effects, "a");
  writeSync(file, `${key} ${order}\n`);
  fsyncSync(file);
  closeSync(file);
  shipped.add(key);
  return true;
}

// handle returns the status, the JSON of the answer, and more headers.
async function handle(headers, body) {
  const run = Number(headers["x-redrive-run"]);
  const order = JSON.parse(body);
  switch (order.fault) {
    case "unknown_sku":
      return [404, { reason: "unknown_sku", detail: `no article ${order.sku}` }];
    case "db_conflict":
      if (run <= 2) return [500, { code: "40001", detail: "could not serialize access" }];
      break;
    case "timeout":
      await new Promise((done) => setTimeout(done, order.sleep * 1000));
      return [504, { reason: "downstream_timeout" }];
    case "rejected":
      return [422, { class: "business_rejection", reason: "blocked_customer" }];
    case "defect":
      throw new TypeError("this version knows no such order");
    case "killer":
      process.exit(9);
  }
  if (existsSync(`${effects}.down`)) return [503, { reason: "warehouse_down" }, { "Retry-After": "1" }];
  const reference = `shipment ${order.order}`;
  return [ship(headers["idempotency-key"], order.order) ? 201 : 409, { reference }];
}

const server = createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", async () => {
    let answer;
    try {
      answer = await handle(request.headers, Buffer.concat(parts).toString());
    } catch (e) {
      // Whatever it is, the worker is told.
      answer = [500, { class: "consumer_defect", reason: e.name, detail: e.message }];
    }
    const [status, problem, more] = answer;
    response.writeHead(status, { "Content-Type": "application/problem+json", ...more });
    response.end(JSON.stringify(problem));
  });
});
server.listen(Number(port), "127.0.0.1", () => console.log(server.address().port));
