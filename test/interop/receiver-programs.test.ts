// The programs of examples/receivers that use a table, against real databases and a real service.
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import {
  mariadbBank,
  newId,
  postgresBank,
  secret,
  signed,
  type Bank,
  type Signed
} from '../consumer/databases.ts'
import { only } from '../support/only.ts'
import { program, without, type Program } from '../support/program.ts'
import { until } from '../support/until.ts'
import { receiptSink } from './receipt-sink.ts'
import { buildSdk, jdbcUrl, mainOf } from './sdk.ts'
import { cache } from './server.ts'

t.setTimeout(2_400_000)

const examples = path.resolve('examples/receivers')
const run = async (command: string, args: string[], cwd = examples) =>
  (await promisify(execFile)(command, args, { cwd })).stdout

interface Language {
  needs: string[]
  /** Runs once for all tests. Returns the function that makes the command. */
  prepare(): Promise<(bank: Bank) => { command: string; args: string[]; env: Record<string, string> }>
}

async function pythonWithDrivers(): Promise<string> {
  const venv = path.join(cache, 'receivers-python')
  const python = path.join(venv, 'bin/python')
  if (!existsSync(python)) await run('python3', ['-m', 'venv', venv])
  await run(python, ['-m', 'pip', 'install', '-q', '-r', path.join(examples, 'python/requirements.txt')])
  return python
}

const toldHeaders = {
  'ackbox-callback-token': 'token-1',
  'ackbox-scene-type': 'v%20i+p',
  'ackbox-attempt': '3',
  'ackbox-round': '2'
}

const languages: Record<string, Language> = {
  python: {
    needs: ['python3'],
    async prepare() {
      const python = await pythonWithDrivers()
      return ({ url }) => ({
        command: python,
        args: [path.join(examples, 'python/points.py')],
        env: { DATABASE_URL: url, PYTHONDONTWRITEBYTECODE: '1' }
      })
    }
  },
  java: {
    needs: ['java', 'mvn'],
    async prepare() {
      await buildSdk()
      return ({ url, db }) => ({
        command: 'java',
        args: mainOf('receivers', 'Points'),
        env: { JDBC_URL: jdbcUrl(url, db.dialect) }
      })
    }
  }
}

for (const [name, { needs, prepare }] of Object.entries(languages))
  t.test(name, { skip: without(...needs) }, async t => {
    const starting = await prepare()
    const banks = [await postgresBank(t), await mariadbBank(t)].filter(bank => bank !== undefined)
    for (const bank of banks)
      await t.test(bank.db.dialect, async t => {
        await stories(t, bank, starting(bank))
      })
  })

t.test('the SDK for Java takes the message of a queue once', { skip: without('java', 'mvn') }, async t => {
  await buildSdk()
  const [, classes = ''] = mainOf('receivers', '')
  for (const bank of [await postgresBank(t), await mariadbBank(t)].filter(each => each !== undefined)) {
    const id = newId()
    const { headers, body } = signed(id, toldHeaders)
    const given = Object.entries(headers).map(each => each.join('='))
    const file = path.resolve('test/interop/sdk/Once.java')
    const url = jdbcUrl(bank.url, bank.db.dialect)
    const said = await run('java', ['-cp', classes, file, url, secret, body.toString(), ...given])
    const result = `{"for":"task-${id}"}`
    t.same(
      said.trim().split('\n'),
      [
        'IllegalStateException',
        'order.paid v i+p 3 2 {"points":7} 3',
        'NotTaken',
        'IllegalStateException',
        'IOException',
        `true ${result}`,
        `false ${result}`,
        'NotTaken',
        'NotTaken',
        'left 0, connections 2',
        'two at the same time',
        'autocommit false'
      ],
      `${bank.db.dialect}: outside a transaction, what the work gets, one older than it may be, one that the server ended, one committed after its work threw, first, repeat, another body, too old; pruned; two that send and prune at the same time; a check that failed`
    )
    t.equal(await bank.granted(), 7)
    t.equal(
      (await bank.select('select 1 from ackbox_receipt_outbox')).length,
      2,
      'a receipt each time; one of 2026-01-01 is pruned'
    )
  }
})

t.test(
  'the SDK for Java: what fails, what is interrupted, and what is done after a 202',
  { skip: without('java', 'mvn') },
  async t => {
    await buildSdk()
    const [, classes = ''] = mainOf('receivers', '')
    const bank = await postgresBank(t)
    const { headers, body } = signed(newId(), { 'ackbox-callback-token': 'token-1' })
    const given = Object.entries(headers).map(each => each.join('='))
    const file = path.resolve('test/interop/sdk/Answers.java')
    const url = jdbcUrl(bank.url, bank.db.dialect)
    const said = await run('java', ['-cp', classes, file, url, secret, body.toString(), ...given])
    const taskNo = headers['ackbox-task-no']
    const [short, long, none, ended, busy, changed, told, tries, early, refused = '', again, receipt = ''] =
      said.trim().split('\n')
    t.same(
      [short, long, none],
      [1, 3_600, 0].map(seconds => `{retry-after=${seconds}}`)
    )
    t.same(
      [ended, busy, changed],
      ['500', '503', '503'],
      'a transaction that the server ended, a deadlock in another error, a row that has changed'
    )
    t.equal(told, 'told 1', 'of three failures in a row while the database is away')
    t.equal(tries, 'tries 1', 'nothing more is sent once the thread is interrupted')
    t.same([early, again], ['202', '202'], 'which need no request afterwards')
    const reason = 'x'.repeat(999) // without half of the last character
    t.match(JSON.parse(refused), { taskNo, result: 'FAILED', reason })
    t.match(JSON.parse(receipt), { taskNo, result: 'HANDLED' })
  }
)

t.test('ackbox_receiver.py takes the message of a queue once', { skip: without('python3') }, async t => {
  const python = await pythonWithDrivers()
  for (const bank of [await postgresBank(t), await mariadbBank(t)].filter(each => each !== undefined)) {
    const id = newId()
    const { headers, body } = signed(id, toldHeaders)
    const input = JSON.stringify({ url: bank.url, secret, headers, body: body.toString() })
    const said = await run(python, [path.resolve('test/interop/sdk/once.py'), input])
    const result = `{'for': 'task-${id}'}`
    t.same(
      said.split('\n').filter(line => line !== '' && !line.startsWith('ackbox_receiver:')),
      [
        '500',
        '503',
        '503',
        '500',
        'RuntimeError',
        'NotTaken it was sent more than max_age_s ago',
        'order.paid v i+p 3 2 {"points":7} 7 True',
        'OSError',
        `True ${result}`,
        `False ${result}`,
        'NotTaken',
        'NotTaken',
        '401',
        '503',
        '3 [0.2, 0.4, 0.8] 30',
        'sent 1',
        '200',
        'two at the same time',
        'None',
        'in the pool 1'
      ],
      `${bank.db.dialect}: a transaction that the server ended, a deadlock in another error, a row that has changed, a failure at the deadline, with autocommit, one committed after its work threw, first, repeat, another body, too old; a false time, no database; of 100 failures in a row three are told; stopped while more receipts are due; with a pool; two that send and prune at the same time`
    )
    t.equal(await bank.granted(), 7)
    t.equal(
      (await bank.select('select 1 from ackbox_receipt_outbox')).length,
      2,
      'a receipt each time; one of 2026-01-01 is pruned'
    )
  }
})

t.test(
  'the receivers without a table send a receipt until Ackbox answers it',
  { skip: without('java', 'python3') },
  async t => {
    const ways: [command: string, file: string][] = [
      [process.execPath, 'receiver.mjs'],
      ['python3', 'receiver.py'],
      ['java', 'Receiver.java']
    ]
    await Promise.all(
      ways.map(async ([command, file]) => {
        const ackbox = await receiptSink(t)
        const settings = { SIGNING_SECRET: secret, ACKBOX_URL: ackbox.url, PORT: '0' }
        const running = program(t, command, [path.join(examples, file)], { env: settings })
        const [, port] = await running.said(/^listening (\d+)$/)
        const { headers, body } = signed(newId(), { 'ackbox-callback-token': 'token-1' })
        await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers, body })
        await until(`the receipt of ${file} is taken`, () => ackbox.receipts.length > 0)
        t.match(ackbox.receipts, only({ taskNo: headers['ackbox-task-no'], result: 'HANDLED' }), file)
        const probe = signed(`probe_${headers['webhook-id']}_2`, { 'ackbox-probe': '1' }, '')
        const asked = await fetch(`http://127.0.0.1:${port}/`, { headers: probe.headers })
        t.same(
          [asked.status, await asked.text().then(JSON.parse)],
          [200, { handled: true }],
          `a probe of ${file}`
        )
        const other = signed('probe_other_2', { 'ackbox-probe': '1' }, '')
        t.equal((await fetch(`http://127.0.0.1:${port}/`, { headers: other.headers })).status, 404, file)
      })
    )
  }
)

async function stories(
  t: Test,
  bank: Bank,
  { command, args, env }: { command: string; args: string[]; env: Record<string, string> }
): Promise<void> {
  const ackbox = await receiptSink(t)
  const programs: Program[] = []
  const begin = async (deadline: string) => {
    const settings = {
      ...env,
      SIGNING_SECRET: secret,
      ACKBOX_URL: ackbox.url,
      PORT: '0',
      DEADLINE_SECONDS: deadline
    }
    const running = program(t, command, args, { env: settings })
    programs.push(running)
    const [, port] = await running.said(/^listening (\d+)$/)
    return async ({ headers, body }: Signed) => {
      const answer = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers, body })
      return { status: answer.status, headers: answer.headers, text: await answer.text() }
    }
  }
  const token = { 'ackbox-callback-token': 'token-1' }
  const ask = await begin('60')
  const hasty = await begin('0.2')

  await t.test('a repeat has the result of the first, and its work is done once', async t => {
    const before = await bank.granted()
    const request = signed(newId())
    const [first, second] = [await ask(request), await ask(request)]
    t.same([first.status, first.headers.get('ackbox-result')], [200, 'HANDLED'])
    t.same(JSON.parse(first.text), { granted: 7 })
    t.same(JSON.parse(second.text), { granted: 7 })
    const many = signed(newId())
    const all = await Promise.all(Array.from({ length: 10 }, () => ask(many)))
    // Requests that conflicted are answered with 503.
    t.ok(all.every(one => one.status === 200 || one.status === 503))
    t.equal((await ask(many)).status, 200)
    t.equal((await bank.granted()) - before, 14)
  })

  await t.test('a probe hears whether the delivery is handled, and runs no work', async t => {
    const before = await bank.granted()
    const id = newId()
    const probe = async () => {
      const { status, headers, text } = await ask(
        signed(`probe_${id}_2`, { 'ackbox-probe': '1' }, '{"points":7}')
      )
      return [status, headers.get('ackbox-result'), JSON.parse(text)] as unknown[]
    }
    t.same(await probe(), [404, null, { handled: false }])
    t.equal((await ask(signed(id))).status, 200)
    t.same(await probe(), [200, null, { handled: true }])
    t.equal((await bank.granted()) - before, 7)
  })

  await t.test('a wrong signature, and what a handler refuses', async t => {
    const before = await bank.granted()
    const { headers } = signed(newId())
    t.equal((await ask({ headers, body: Buffer.from('{"points":8}') })).status, 401)
    const never = await ask(signed(newId(), {}, '{"points":7,"closed":true}'))
    t.same([never.status, JSON.parse(never.text)], [410, { reason: 'the account is closed' }])
    const later = await ask(signed(newId(), {}, '{"points":7,"later":true}'))
    t.same([later.status, later.headers.get('retry-after')], [503, '7'])
    t.equal((await ask(signed(newId(), {}, '{"points":"x"}'))).status >= 200, true)
    // It is answered with 413, or cut off during the upload.
    const large = await ask(signed(newId(), {}, `{"points":7,"note":"${'x'.repeat(1 << 20)}"}`)).catch(
      () => {}
    )
    t.equal(large?.status ?? 413, 413, 'a body of more than 1 MiB is not read')
    t.equal((await bank.granted()) - before, 0)
  })

  await t.test('past the deadline: 503 without a token, and with one 202 and a receipt', async t => {
    const before = await bank.granted()
    const slow = signed(newId(), {}, '{"points":7,"seconds":1}')
    t.equal((await hasty(slow)).status, 503)
    t.equal((await ask(slow)).status, 200)
    const receipted = signed(newId(), token, '{"points":7,"seconds":1}')
    t.equal((await hasty(receipted)).status, 202)
    await until('its receipt is sent', () => ackbox.receipts.length > 0)
    t.match(ackbox.receipts, only({ taskNo: receipted.headers['ackbox-task-no'], result: 'HANDLED' }))
    await until(
      'its row is gone',
      async () => (await bank.select('select 1 from ackbox_receipt_outbox')).length === 0
    )
    t.equal((await bank.granted()) - before, 14)
  })

  await t.test('of a receipt that cannot be sent, each tenth failure is told', async t => {
    const said = () => programs.flatMap(({ lines }) => lines).filter(line => line.includes('was answered'))
    t.same(said(), [], 'nothing of the five of the last one')
    await bank.select(
      `insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt, tries)
       values ('points', '', 'token-2', '{"taskNo":"told","messageCode":"order.paid","result":"HANDLED"}', 9)`
    )
    await until('it is told', () => said().length > 0)
    t.match(said(), only(/told.* was answered 401: \{\}/))
    await bank.select('delete from ackbox_receipt_outbox')
  })

  await t.test('while a receipt is on its way to Ackbox, others write theirs', async t => {
    // A wait for a lock fails soon.
    if (bank.db.dialect === 'mysql') await bank.select('set global innodb_lock_wait_timeout = 2')
    const late = () => hasty(signed(newId(), token, '{"points":7,"seconds":1}'))
    const rows = async () => (await bank.select('select 1 from ackbox_receipt_outbox')).length
    const { came, answer } = ackbox.hold()
    t.equal((await late()).status, 202)
    await came
    t.equal(await rows(), 1)
    t.equal((await late()).status, 202)
    await until('the second is written', async () => (await rows()) === 2)
    answer()
    await until('both are sent', async () => (await rows()) === 0)
  })
}
