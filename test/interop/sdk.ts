// The SDK for Java, built with the examples that use it, and how to start one of them.
import path from 'node:path'
import type { Dialect } from '../../src/adapter/transaction.ts'
import { built } from './server.ts'

/** Builds all of it. */
export const buildSdk = (): Promise<void> =>
  built('sdk', 'mvn', '-B', '-q', '-f', 'sdk', 'package', ...copied)

const copied = ['dependency:copy-dependencies', '-DincludeScope=runtime']

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
