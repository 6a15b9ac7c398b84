// The TypeScript of these pages compiles, each page as one program, under strict.
import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { page } from './markdown.ts'

const root = path.resolve(import.meta.dirname, '../../..')

/** What the reader's own program has already. */
const owns: Record<string, string> = {
  'producers/sdk.md': `
    import type { FastifyInstance } from 'fastify'
    import type { Pool } from 'pg'
    import type { Sql } from 'postgres'
    declare const app: FastifyInstance
    declare const pool: Pool
    declare const sql: Sql
    declare const id: string
    declare const messageBody: object
  `,
  'receivers/consumer.md': `
    import type { MessagesStream } from '@platformatic/kafka'
    import type { FastifyInstance } from 'fastify'
    import type { Pool } from 'pg'
    import type { Sql, TransactionSql } from 'postgres'
    import type { ReceivedTask } from 'ackbox/consumer'
    declare const app: FastifyInstance
    declare const pool: Pool
    declare const db: Sql
    declare const stream: MessagesStream<Buffer, Buffer, Buffer, Buffer>
    declare function grant (tx: TransactionSql, task: ReceivedTask): Promise<void>
  `
}
/** The types come from the sources: `npm test` writes no declarations. test/package compiles with those of the package. */
const compilerOptions = {
  rootDir: '../..',
  noEmit: true,
  incremental: false,
  declaration: false,
  customConditions: ['ackbox-source'],
  noPropertyAccessFromIndexSignature: false
}

t.test('a reader who copies the examples of the packages gets a program that compiles', async t => {
  // Inside the project, so that `ackbox/producer` resolves to this package.
  const folder = path.join(root, 'dist', `examples-${process.pid}`)
  mkdirSync(folder)
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(
    path.join(folder, 'tsconfig.json'),
    JSON.stringify({ extends: '../../tsconfig.json', compilerOptions, include: ['*.ts'] })
  )
  for (const [name, own] of Object.entries(owns))
    for (const language of ['docs', 'docs/zh']) {
      const texts = page(root, `${language}/${name}`)
        .blocks.filter(block => block.language === 'ts')
        .map(({ text }) => text)
      t.ok(texts.length > 1, `${language}/${name}`)
      const file = `${language}-${name}`.replaceAll('/', '-').replace(/md$/, 'ts')
      writeFileSync(path.join(folder, file), [own, ...texts].join('\n'))
    }
  const compile = (): string => {
    try {
      const tsc = path.join(root, 'node_modules/typescript/lib/tsc.js')
      return execFileSync(process.execPath, [tsc, '-p', folder], { encoding: 'utf8' })
    } catch (err) {
      return (err as { stdout: string }).stdout
    }
  }
  t.equal(compile(), '')
  writeFileSync(path.join(folder, 'wrong.ts'), "import { verify } from 'ackbox/producer'\nverify()")
  t.match(compile(), /wrong\.ts.*no exported member/, 'a function that does not exist would be found')
})
