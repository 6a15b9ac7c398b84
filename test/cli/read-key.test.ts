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

t.test('a key from a file that PowerShell wrote is read, or refused with the remedy', t => {
  const file = path.join(t.testdir({}), 'key')
  writeFileSync(file, '\uFEFFack_1\r\n')
  t.equal(readKey({ 'key-file': file }, {}), 'ack_1')
  writeFileSync(file, Buffer.from('\uFEFFack_1\r\n', 'utf16le'))
  t.throws(
    () => readKey({ 'key-file': file }, {}),
    /^--key-file cannot be read: .* is not UTF-8 .*: save it as UTF-8$/
  )
  t.end()
})
