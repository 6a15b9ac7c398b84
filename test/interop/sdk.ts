// Builds the SDK for Java with the examples that use it, and makes the arguments to start one of them.
import path from 'node:path'
import type { Dialect } from '../../src/adapter/transaction.ts'
import { built } from './server.ts'

/** Builds the SDK and its examples. */
export const buildSdk = (): Promise<void> =>
  built('sdk', 'mvn', '-B', '-q', '-f', 'sdk', 'package', ...copied)

const copied = ['dependency:copy-dependencies', '-DincludeScope=runtime']

/** The arguments of `java` that start a program of this example. */
export function mainOf(example: 'producers' | 'receivers', main: string): string[] {
  const target = path.resolve('examples', example, 'java/target')
  return ['-cp', `${target}/classes:${target}/dependency/*`, `ackbox.example.${main}`]
}

export function jdbcUrl(url: string, dialect: Dialect): string {
  const { username, password, host, pathname } = new URL(url)
  const kind = dialect === 'postgres' ? 'postgresql' : 'mariadb'
  return `jdbc:${kind}://${host}${pathname}?user=${username}&password=${password}`
}

/** The same URL in the form of Go's `database/sql`. */
export function goUrl(url: string, dialect: Dialect): string {
  const { username, host, pathname } = new URL(url)
  return dialect === 'postgres' ? `${url}?sslmode=disable` : `${username}@tcp(${host})${pathname}`
}
