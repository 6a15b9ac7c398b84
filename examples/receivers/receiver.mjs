// A downstream of Ackbox in plain Node (20 or newer, no packages): verifies, handles once, sends its receipt.
//   SIGNING_SECRET=whsec_… ACKBOX_URL=http://127.0.0.1:3000 PORT=8080 node receiver.mjs
import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

const { SIGNING_SECRET = '', ACKBOX_URL = 'http://127.0.0.1:3000', PORT = '8080' } = process.env
const base64 = SIGNING_SECRET.replace(/^whsec_/, '')
const key = Buffer.from(base64, 'base64')
// Node decodes any text without an error.
if (!/^[A-Za-z0-9+/]+={0,2}$/.test(base64) || base64.replace(/=+$/, '').length % 4 === 1 || key.length < 24)
  throw new Error('set SIGNING_SECRET: npm run key -- secret DOWNSTREAM prints it')
const toleranceS = 300
const maxBytes = 1_048_576
/** With these codes Ackbox refuses a receipt for good: a wrong or old token, a removed or deleted task, an invalid receipt. */
const refused =
  /^(BAD_TOKEN|TASK_NOT_FOUND|TASK_DELETED|INVALID|WRONG_CODE|WRONG_DOWNSTREAM|TOO_LARGE|DATA_TOO_LARGE|NOT_JSON|NOT_UTF8|NOT_I_JSON|TOO_DEEP|TOO_MANY_MEMBERS)$/

// In memory for the example. In production: a table with webhook-id as its key, written in the transaction of the work.
const handled = new Set()

function handle(headers, body) {
  console.log('handled', headers['webhook-id'], headers['ackbox-task-no'], body.toString())
}

const server = createServer(async (request, response) => {
  try {
    const body = await read(request)
    if (!verify(request.headers, body)) return response.writeHead(401).end()
    const id = request.headers['webhook-id']
    // A probe asks whether a delivery is handled. Its work must not run.
    const asked = /^probe_(.+)_\d+$/.exec(id)?.[1]
    if (asked) {
      const isHandled = handled.has(asked)
      return response
        .writeHead(isHandled ? 200 : 404, { 'content-type': 'application/json' })
        .end(`{"handled":${isHandled}}`)
    }
    // A repeated id was handled before, but our answer or receipt may be lost: answer again, without handling it twice.
    if (!handled.has(id)) {
      handle(request.headers, body)
      handled.add(id)
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"code":0}')
    if (request.headers['ackbox-callback-token']) await sendReceipt(request.headers)
  } catch (error) {
    console.error(error)
    // Any 5xx: Ackbox sends it again.
    if (!response.headersSent) response.writeHead(500).end()
  }
})
server.listen(Number(PORT), '127.0.0.1', () => console.log('listening', server.address().port))

async function read(request) {
  const chunks = []
  let size = 0
  for await (const chunk of request) {
    size += chunk.length
    if (size > maxBytes) throw new Error('the body is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** Standard Webhooks: HMAC-SHA256 over id.timestamp.body, byte for byte. One matching signature is enough. */
function verify(headers, body) {
  const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures } = headers
  // With a dot in the id, the id could hold the time, and the time a part of the body.
  if (!/^[\w-]+$/.test(id) || !/^\d{1,12}$/.test(timestamp) || !signatures) return false
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > toleranceS) return false
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest()
  return signatures.split(' ').some(each => {
    const [version, base64 = ''] = each.split(',')
    const given = Buffer.from(base64, 'base64')
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected)
  })
}

/** Repeated until Ackbox accepts it. It uses the configured address: headers are not signed, so a URL in them cannot be trusted. */
async function sendReceipt(headers) {
  const body = JSON.stringify({
    taskNo: headers['ackbox-task-no'],
    messageCode: headers['ackbox-message-code'],
    result: 'HANDLED'
  })
  for (let tries = 1; tries <= 10; tries++) {
    try {
      const answer = await fetch(`${ACKBOX_URL}/callback`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'ackbox-callback-token': headers['ackbox-callback-token']
        },
        body,
        redirect: 'manual',
        signal: AbortSignal.timeout(5_000)
      })
      // Only an answer of Ackbox ends it. A gateway answers with another body, also in JSON.
      const { taskNo, code } = await answer.json()
      if (answer.ok && taskNo) return
      if (!answer.ok && refused.test(code))
        return console.error(`the receipt of ${headers['ackbox-task-no']} was answered ${answer.status}`)
    } catch {} // Ackbox is not reachable, or the answer is no JSON: try again after the wait
    await sleep(Math.min(30_000, 250 * 2 ** tries))
  }
  // After the last try: without a receipt in time Ackbox sends the task again, and a new receipt follows.
}
