import { hash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { extname } from 'node:path'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** A file in memory. A file on disk would stay open until each answer is read. */
export interface StaticFile {
  bytes: Buffer
  /** Made by the first request that accepts it. */
  gzipped?: Promise<Buffer>
  type: string
  etag: string
}

const types: Record<string, string> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.png': 'image/png',
  '.svg': 'image/svg+xml'
}

/** Weight 0 refuses it (RFC 9110, 12.5.3). */
const acceptsGzip = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/

const compress = promisify(gzip)

/** The files of a folder that a browser knows, by name. The URL of the folder ends in `/`. */
export function readFiles(folder: URL): Map<string, StaticFile> {
  return new Map(
    readdirSync(folder)
      .filter(name => extname(name) in types)
      .map((name): [string, StaticFile] => {
        const bytes = readFileSync(new URL(name, folder))
        const etag = `"${hash('sha256', bytes, 'base64url').slice(0, 22)}"`
        return [name, { bytes, type: types[extname(name)] ?? '', etag }]
      })
  )
}

/** Answers with the file, compressed if the client accepts it, or with 304 if the client has it. */
export async function sendFile(
  request: FastifyRequest,
  reply: FastifyReply,
  file: StaticFile
): Promise<FastifyReply> {
  void reply.headers({ vary: 'accept-encoding', etag: file.etag })
  if (request.headers['if-none-match']?.includes(file.etag)) return reply.code(304).send()
  void reply.type(file.type)
  if (!acceptsGzip.test(request.headers['accept-encoding'] ?? '')) return reply.send(file.bytes)
  file.gzipped ??= compress(file.bytes)
  return reply.header('content-encoding', 'gzip').send(await file.gzipped)
}
