// OpenTelemetry, when OTEL_EXPORTER_OTLP_ENDPOINT is set. Without it, nothing here is loaded or called.
import { createHash } from 'node:crypto'
import type { Attributes, Context, Link, Span } from '@opentelemetry/api'
import { isMissingPackage, SetupError } from '../runtime/errors.ts'
import type { Accept, AcceptResult, BatchAcceptResult, TaskRequest } from '../delivery/accept.ts'
import type { Traced } from '../delivery/execute.ts'
import type { HeaderOptions } from '../delivery/headers.ts'
import type { ReceiptRequest, ReceiveResult } from '../delivery/receive.ts'
import type { Logger } from '../runtime/logger.ts'
import { waitAtMost } from '../runtime/with-timeout.ts'
import { defined } from '../domain/optional-members.ts'

type Receive = (request: ReceiptRequest) => Promise<ReceiveResult>

/** The hooks of the service. Without tracing, they return the functions unchanged. */
export interface Tracing {
  accept(accept: Accept): Accept
  receive(receive: Receive): Receive
  /** The `traceparent` that the downstream of an attempt gets. */
  traceparentOf: HeaderOptions['traceparentOf']
  attempted: Traced | undefined
  close(): Promise<void>
}

const off: Tracing = {
  accept: accept => accept,
  receive: receive => receive,
  traceparentOf: undefined,
  attempted: undefined,
  close: async () => {}
}

const closeMs = 3_000
const warnMs = 60_000
const statusError = 2
const [kindServer, kindClient] = [1, 2]

/** Rejects when the packages are missing. While the collector is away, only spans are lost. */
export async function openTracing({
  version,
  node,
  log
}: {
  version: string
  node: string
  log: Logger
}): Promise<Tracing> {
  if (!isOn()) return off
  const { api, exporter, sdk, resources } = await load()
  const resource = resources
    .resourceFromAttributes({
      'service.name': 'ackbox',
      'service.version': version,
      'service.instance.id': node
    })
    .merge(resources.detectResources({ detectors: [resources.envDetector] }))
  const ids = idGenerator(new sdk.RandomIdGenerator())
  const provider = new sdk.BasicTracerProvider({
    resource,
    idGenerator: ids,
    spanProcessors: [new sdk.BatchSpanProcessor(new exporter.OTLPTraceExporter())]
  })
  let warnedAt = -Infinity
  const warn = (message: string): void => {
    if (performance.now() - warnedAt < warnMs) return
    warnedAt = performance.now()
    log.warn({ reason: message.slice(0, 300) }, 'otel.export_failed')
  }
  const quiet = (): void => {}
  api.diag.setLogger(
    { error: warn, warn: quiet, info: quiet, debug: quiet, verbose: quiet },
    api.DiagLogLevel.ERROR
  )
  const tracer = provider.getTracer('ackbox', version)
  const root = api.ROOT_CONTEXT

  /** The span is still open. A span that never ends is never exported. */
  const attemptSpan = (
    key: AttemptKey,
    at: { startTime?: Date; links?: Link[]; attributes?: Attributes }
  ): Span => {
    ids.next = idsOf(key)
    return tracer.startSpan(`deliver ${key.downstream}`, { kind: kindClient, ...at }, root)
  }
  const remote = (traceparent: string | null): Context => {
    const parent = contextOf(traceparent)
    return parent ? api.trace.setSpanContext(root, parent) : root
  }
  const accepted = (request: TaskRequest, startTime: Date, result: BatchAcceptResult | undefined): void => {
    const { taskNo, messageCode, traceparent } = request
    const span = tracer.startSpan(
      `accept ${messageCode}`,
      { kind: kindServer, startTime, attributes: { ...attributesOf({ taskNo, messageCode }) } },
      remote(traceparent)
    )
    if (result) span.setAttribute('ackbox.result', result.kind)
    else span.setStatus({ code: statusError, message: 'unavailable' })
    span.end()
  }

  return {
    accept(accept) {
      const traced = async (request: TaskRequest): Promise<AcceptResult> => {
        const startTime = new Date()
        let result: AcceptResult | undefined
        try {
          return (result = await accept(request))
        } finally {
          accepted(request, startTime, result)
        }
      }
      const many = async (requests: readonly TaskRequest[]): Promise<BatchAcceptResult[]> => {
        const startTime = new Date()
        let results: BatchAcceptResult[] = []
        try {
          return (results = await accept.many(requests))
        } finally {
          for (const [index, request] of requests.entries()) accepted(request, startTime, results[index])
        }
      }
      return Object.assign(traced, { ...accept, many })
    },

    receive: receive => async request => {
      const startTime = new Date()
      const received = await receive(request)
      // No span without a valid token: anyone could fill the collector.
      if (typeof received !== 'object') return received
      const { taskNo, messageCode, result } = request
      const [, , , downstream = '', attempt = ''] = request.token?.split('.') ?? []
      // Another process may have made the span of the attempt. Its ids can still be computed here.
      const parent = attemptSpan({ taskNo, downstream, attempt: Number(attempt) }, {})
      const span = tracer.startSpan(
        `receipt ${downstream}`,
        {
          kind: kindServer,
          startTime,
          attributes: attributesOf({ taskNo, messageCode, downstream, attempt: Number(attempt) })
        },
        api.trace.setSpan(root, parent)
      )
      const { status, applied } = received
      span.setAttributes({ 'ackbox.result': result, 'ackbox.status': status, 'ackbox.applied': applied })
      span.end()
      return received
    },

    traceparentOf({ task, downstream, attempt }) {
      const { traceId, spanId, traceFlags } = attemptSpan(
        { taskNo: task.taskNo, downstream, attempt },
        {}
      ).spanContext()
      return `00-${traceId}-${spanId}-0${traceFlags & 1}`
    },

    attempted({ task, downstream, attempt }, outcome, move, startTime) {
      const { taskNo, messageCode, traceparent } = task
      const context = contextOf(traceparent)
      const span = attemptSpan(
        { taskNo, downstream, attempt },
        {
          startTime,
          links: context ? [{ context }] : [],
          attributes: {
            ...attributesOf({ taskNo, messageCode, downstream, attempt }),
            'ackbox.outcome': outcome.kind,
            'ackbox.move': move,
            ...defined({
              'http.response.status_code': outcome.status,
              'network.peer.address': outcome.address
            })
          }
        }
      )
      if ('reason' in outcome) span.setStatus({ code: statusError, message: outcome.reason })
      span.end()
    },

    async close() {
      await waitAtMost(closeMs, provider.shutdown().catch(warn))
      api.diag.disable()
    }
  }
}

const packages =
  '@opentelemetry/api@1 @opentelemetry/sdk-trace-base@2 @opentelemetry/resources@2 @opentelemetry/exporter-trace-otlp-http@0.223'

/** The SDK reads this variable from the environment too, with its other `OTEL_…` variables. */
const isOn = (): boolean => !!process.env['OTEL_EXPORTER_OTLP_ENDPOINT']

/** Rejects with SetupError when a package is missing and tracing is on. */
export async function needTracing(): Promise<void> {
  if (isOn()) await load()
}

async function load() {
  try {
    const [api, exporter, sdk, resources] = await Promise.all([
      import('@opentelemetry/api'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/sdk-trace-base'),
      import('@opentelemetry/resources')
    ])
    return { api, exporter, sdk, resources }
  } catch (error) {
    if (!isMissingPackage(error)) throw error
    throw new SetupError(`OTEL_EXPORTER_OTLP_ENDPOINT needs packages: npm install ${packages}`)
  }
}

interface AttemptKey {
  taskNo: string
  downstream: string
  attempt: number
}
interface Ids {
  traceId: string
  spanId: string
}

/** The ids are the same in every process, so a receipt finds the span of its attempt without a stored row. */
function idsOf({ taskNo, downstream, attempt }: AttemptKey): Ids {
  const hash = createHash('sha256').update(`${downstream}.${attempt}.${taskNo}`).digest('hex')
  return { traceId: hash.slice(0, 32), spanId: hash.slice(32, 48) }
}

/** Random ids. Only the first root span after `next` is set takes both ids of `next`, in any order. */
function idGenerator(random: { generateTraceId(): string; generateSpanId(): string }) {
  const take = (name: keyof Ids): string | undefined => {
    const { [name]: id, ...rest } = generator.next
    generator.next = rest
    return id
  }
  const generator = {
    next: {} as Partial<Ids>,
    generateTraceId: (): string => take('traceId') ?? random.generateTraceId(),
    generateSpanId: (): string => take('spanId') ?? random.generateSpanId()
  }
  return generator
}

function contextOf(
  traceparent: string | null
): { traceId: string; spanId: string; traceFlags: number; isRemote: true } | undefined {
  const [, traceId = '', spanId = '', flags = ''] =
    /^[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})/.exec(traceparent ?? '') ?? []
  return traceId === ''
    ? undefined
    : { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true }
}

function attributesOf({
  taskNo,
  messageCode,
  downstream,
  attempt
}: {
  taskNo: string
  messageCode: string
  downstream?: string
  attempt?: number
}): Attributes {
  return {
    'ackbox.task_no': taskNo,
    'ackbox.message_code': messageCode,
    ...defined({ 'ackbox.downstream': downstream, 'ackbox.attempt': attempt })
  }
}
