// A row of ackbox_receipt_outbox that is no receipt: it goes, somebody hears of it, and the others are sent.
import t from 'tap'
import { ReceiptRefused, sendDue } from '../../src/consumer/receipts.ts'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { only } from '../support/only.ts'
import { mariadbBank, postgresBank } from './databases.ts'

for (const [kind, open] of [
  ['postgres', postgresBank],
  ['mysql', mariadbBank]
] as const) {
  t.test(
    `${kind}: a row that is no receipt is refused once, and the receipts beside it are sent`,
    async t => {
      const bank = await open(t)
      if (!bank) return
      const fake = await fakeAckbox(t)
      fake.script = ({ text }, response) => {
        try {
          const { taskNo } = JSON.parse(text) as { taskNo: string }
          return answer(response, 200, { taskNo, status: 'HANDLED' })
        } catch {
          return answer(response, 400, { code: 'NOT_JSON' })
        }
      }
      const rows = [
        '{"taskNo":"a","result":"HANDLED"}',
        'no JSON',
        'null',
        '{"taskNo":"b","result":"HANDLED"}'
      ]
      const values = rows.map(row => `('points', '${fake.url}', 'token', '${row}')`)
      await bank.select(
        `insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt) values ${values.join()}`
      )
      const errors: unknown[] = []
      const options = { consumer: 'points', url: undefined, onError: (err: unknown) => void errors.push(err) }
      await sendDue(bank.db, options, new AbortController().signal)
      t.match(errors, only(ReceiptRefused, ReceiptRefused))
      t.same(await bank.select('select receipt from ackbox_receipt_outbox'), [])
    }
  )
}
