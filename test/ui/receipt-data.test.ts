import t from 'tap'
import { withDataAsText } from '../../src/ui/receipt-data.ts'

t.test('the data of receipts keep each digit, and all else is as it was', async t => {
  const receipts = [
    '{"result":"HANDLED","data":{"id":1234567890123456789,"of":[1.10,"a \\" } ,"],"data":{}}}',
    '{"result":"HANDLED"}',
    '{"data":1e400,"result":"RETRY"}',
    '{"data":"text"}'
  ]
  const answer = `{"taskNo":"a","extend":{"data":1,"deliveries":[{"receipts":[{"data":2}]}]},"deliveries":[{"data":3,"receipts":[]},{"receipts":[${receipts.join()}]}],"messageBody":{"data":1.0}}`
  t.same(JSON.parse(withDataAsText(answer)), {
    taskNo: 'a',
    extend: { data: 1, deliveries: [{ receipts: [{ data: 2 }] }] },
    deliveries: [
      { data: 3, receipts: [] },
      {
        receipts: [
          { result: 'HANDLED', data: '{"id":1234567890123456789,"of":[1.10,"a \\" } ,"],"data":{}}' },
          { result: 'HANDLED' },
          { data: '1e400', result: 'RETRY' },
          { data: '"text"' }
        ]
      }
    ],
    messageBody: { data: 1 }
  })
})
