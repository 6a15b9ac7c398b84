// The SDK for Java, built with the examples that use it, and how to start one of them.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Dialect } from '../../src/adapter/transaction.ts'

/** Once for a file of tests: builds all of it. */
export async function buildSdk(): Promise<void> {
  const maven = ['-B', '-q', '-f', 'sdk', 'package', 'dependency:copy-dependencies', '-DincludeScope=runtime']
  await promisify(execFile)('mvn', maven, { maxBuffer: 16 * 1_048_576 })
}

/** What `java` needs to start a program of that example. */
export function mainOf(example: 'producers' | 'receivers', main: string): string[] {
  const target = path.resolve('examples', example, 'java/target')
  return ['-cp', `${target}/classes:${target}/dependency/*`, `ackbox.example.${main}`]
}

export function jdbcUrl(url: string, dialect: Dialect): string {
  const { username, password, host, pathname } = new URL(url)
  const kind = dialect === 'postgres' ? 'postgresql' : 'mariadb'
  return `jdbc:${kind}://${host}${pathname}?user=${username}&password=${password}`
}

/** What Go's `database/sql` calls the same. */
export function goUrl(url: string, dialect: Dialect): string {
  const { username, host, pathname } = new URL(url)
  return dialect === 'postgres' ? `${url}?sslmode=disable` : `${username}@tcp(${host})${pathname}`
}
