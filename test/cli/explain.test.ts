import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import t from 'tap'
import { explain } from '../../src/cli/explain.ts'

const errorOf = (code: string, more: object): Error =>
  Object.assign(new Error(`${code}: as told`), { code, ...more })

t.test('only an error of listen or bind is told as one of HOST and PORT', async t => {
  const listening = createServer()
  const err = await new Promise<unknown>(resolve => {
    listening.once('error', resolve).listen(4999, '192.0.2.1')
  })
  t.match(explain(err), /^ackbox: cannot listen on 192\.0\.2\.1:4999 \(EADDRNOTAVAIL\): check HOST and PORT$/)
  t.match(
    explain(errorOf('EACCES', { syscall: 'listen', address: '::1', port: 80 })),
    /cannot listen on ::1:80/
  )
  t.match(
    explain(errorOf('EACCES', { syscall: 'open', path: '/srv/handlers/a.ts' })),
    /^ackbox: a file or folder cannot be used \(EACCES: as told\)/
  )
})

t.test('the reason of a failed query is told, which its own error does not name', t => {
  const cause = Object.assign(new Error('column "c" does not exist'), { code: '42703' })
  const failed = Object.assign(new Error('Failed query: create table a (b int)\nparams: '), { cause })
  t.match(explain(failed), 'because of Error: column "c" does not exist')
  const full = Object.assign(new Error('Failed query: insert into a\nparams: '), {
    cause: errorOf('53100', { message: 'No space left on device' })
  })
  t.match(explain(full), /^ackbox: PostgreSQL cannot be used \(No space left on device\)/)
  t.end()
})

t.test('a PostgreSQL that answers is not told as one that is away', t => {
  const said: [code: string, message: string, said: RegExp][] = [
    ['28P01', 'password authentication failed', /refuses the connection \(password.*\): check DATABASE_URL$/],
    [
      '3D000',
      'database "x" does not exist',
      /refuses the connection \(database "x" .*\): check DATABASE_URL$/
    ],
    [
      '42501',
      'permission denied for table a',
      /may not do this \(permission .*\): run it as the owner of the tables/
    ],
    [
      '42P01',
      'relation "a" does not exist',
      /has no tables yet \(relation .*\): run npm run migrate \(or npm start/
    ]
  ]
  for (const [code, message, line] of said) {
    const text = explain(errorOf(code, { message }))
    t.match(text, /^ackbox: /)
    t.match(text, line)
    t.notMatch(text, '\n', 'one line')
  }
  t.end()
})

t.test('a missing file is not told as a PostgreSQL that is away, but a missing socket is', async t => {
  let err: unknown
  try {
    readFileSync('/nowhere/file')
  } catch (thrown) {
    err = thrown
  }
  t.match(explain(err), /^ackbox: a file or folder cannot be used \(ENOENT.*'\/nowhere\/file'\)/)
  t.match(
    explain(errorOf('ENOENT', { syscall: 'connect', address: '/run/.s.PGSQL.5432' })),
    /^ackbox: PostgreSQL/
  )
})
