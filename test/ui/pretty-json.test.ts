import t from 'tap'
import { prettyJson, withDataAsText } from '../../src/ui/pretty-json.ts'

t.test('a body is shown with line breaks, and each of its numbers and texts as it was written', async t => {
  t.equal(
    prettyJson('{"n":12345678901234567890,"m":1.10}'),
    '{\n  "n": 12345678901234567890,\n  "m": 1.10\n}'
  )
  t.equal(
    prettyJson('{"b":[1,{"c":"a , \\" { b"}],"10":1,"2":2,"10":3}'),
    '{\n  "b": [\n    1,\n    {\n      "c": "a , \\" { b"\n    }\n  ],\n  "10": 1,\n  "2": 2,\n  "10": 3\n}',
    'members in their order, and one that is there twice'
  )
  t.equal(prettyJson('{ "a" : [ ] ,\n "b" : { } }'), '{\n  "a": [],\n  "b": {}\n}')
  t.equal(prettyJson('"text with   spaces"'), '"text with   spaces"')
  t.equal(prettyJson('-1.0e+10'), '-1.0e+10')
  t.equal(prettyJson('{"a":'), '{"a":', 'what is no JSON stays as it is')
  const spaces = `{"a":${' '.repeat(250_000)}1}`
  t.equal(prettyJson(spaces), '{\n  "a": 1\n}')
})

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
