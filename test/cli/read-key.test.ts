import { writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { readKey } from '../../src/cli/arguments.ts'

t.test('a line break at the end of a key is none of its characters, wherever the key is from', t => {
  const file = path.join(t.testdir({}), 'key')
  writeFileSync(file, 'ack_1\n')
  t.equal(readKey({ key: 'ack_1\n' }, {}), 'ack_1')
  t.equal(readKey({ 'key-file': file }, {}), 'ack_1')
  t.equal(readKey({}, { ACKBOX_KEY: 'ack_1\r\n' }), 'ack_1')
  t.equal(readKey({}, { ACKBOX_KEY: '\n' }), undefined)
  t.equal(readKey({}, {}), undefined)
  t.end()
})
