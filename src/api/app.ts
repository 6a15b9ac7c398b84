import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { accessTo, acts } from './access.ts'
import { apiKeyRoutes } from './api-keys.ts'
import { proxyCheck } from './address.ts'
import { doorkeeper, keyLimit, type KeyLimits } from './auth.ts'
import { callbackRoutes } from './callback.ts'
import { deliveryRoutes } from './deliveries.ts'
import type { ApiDeps } from './deps.ts'
import { docs } from './docs.ts'
import { eventRoutes } from './events.ts'
import { dtmRoutes } from './dtm.ts'
import { halfRoutes } from './half.ts'
import { healthRoutes } from './health.ts'
import { orderingKeyRoutes } from './ordering-keys.ts'
import { checkRequest, refuseBody, refuseQuery, originForm, takeNoContent } from './request-checks.ts'
import { operationRoutes } from './operations.ts'
import { operatorRoutes } from './operator.ts'
import { alarmRoutes } from './alarms.ts'
import { downstreamRoutes } from './downstreams.ts'
import { handlerRoutes } from './handlers.ts'
import { deliveryRequestRoutes } from './delivery-request.ts'
import { taskActionRoutes } from './task-actions.ts'
import { bodyRoom, loopWatch } from './overload.ts'
import { originGuard } from './origin.ts'
import { outboxRoutes } from './outbox.ts'
import { reconcileRoutes } from './reconcile.ts'
import { sendProblem } from './problem.ts'
import { connectionLimiter, connectionLimits, type ConnectionLimits } from './connections.ts'
import {
  closeInTime,
  guardServer,
  maxRequestsPerSocket,
  onClientError,
  paths,
  serverOptions
} from './server.ts'
import { sessionRoutes } from './session.ts'
import { failureRoutes } from './failures.ts'
import { statsRoutes } from './stats.ts'
import { taskRoutes } from './tasks.ts'
import { serializerCompiler, validatorCompiler, type App, type Typed } from './typed.ts'
import { uiRoutes } from './ui.ts'
import { Problem, Unavailable } from '../runtime/errors.ts'

/** The HTTP API over `deps`, ready to `listen` or `inject`. `more` adds routes. */
export async function buildApp(
  deps: ApiDeps,
  more?: (app: App) => void,
  limits: Partial<AppLimits> = {}
): Promise<App> {
  const keyLimits = limitsOf(deps)
  const app = bareApp(deps, keyLimits, limits)
  await docs(app)
  taskRoutes(app, deps)
  taskActionRoutes(app, deps)
  deliveryRequestRoutes(app, deps)
  halfRoutes(app, deps)
  callbackRoutes(app, deps)
  deliveryRoutes(app, deps)
  alarmRoutes(app, deps)
  handlerRoutes(app, deps)
  downstreamRoutes(app, deps)
  apiKeyRoutes(app, deps)
  orderingKeyRoutes(app, deps)
  operatorRoutes(app, deps)
  operationRoutes(app, deps)
  outboxRoutes(app, deps)
  statsRoutes(app, deps)
  failureRoutes(app, deps)
  eventRoutes(app, deps)
  sessionRoutes(app, deps, keyLimits.requests)
  uiRoutes(app)
  reconcileRoutes(app, deps)
  if (deps.dtmTargets) dtmRoutes(app, deps, deps.dtmTargets)
  healthRoutes(app, deps)
  more?.(app)
  await app.ready()
  return app
}

/** Only the health routes: for workers and dispatchers. */
export async function buildHealthApp(deps: ApiDeps): Promise<App> {
  const app = bareApp(deps, limitsOf(deps), {})
  healthRoutes(app, deps)
  await app.ready()
  return app
}

/** Of acts, ten times as many at once as in a second. */
const limitsOf = ({ keyPerSecond, actsPerSecond }: ApiDeps): KeyLimits => ({
  requests: keyLimit(keyPerSecond),
  acts: keyLimit(actsPerSecond, (actsPerSecond ?? 0) * 10)
})

type AppLimits = ConnectionLimits & {
  /** Beyond this mean delay of the event loop, requests are refused. */
  loopDelayMs: number
}

/** Request checks, errors and limits, without a route. */
function bareApp(
  deps: ApiDeps,
  keyLimits: KeyLimits,
  { loopDelayMs = 2_000, ...limits }: Partial<AppLimits>
): App {
  const known = paths()
  const keyed = doorkeeper(deps, keyLimits)
  const trusted = deps.trustProxy
  const app: App = fastify({
    logger: false,
    http: serverOptions,
    requestTimeout: serverOptions.requestTimeout,
    maxRequestsPerSocket,
    forceCloseConnections: 'idle',
    // Our own answer is problem+json, like all refusals.
    return503OnClosing: false,
    trustProxy: typeof trusted === 'number' ? (_address, hop) => hop < trusted : trusted,
    bodyLimit: 288 * 1024,
    routerOptions: { maxParamLength: 2_048 },
    rewriteUrl: request => originForm(request.url ?? '/'),
    clientErrorHandler: onClientError(known),
    frameworkErrors: (error, _request, reply) => {
      sendProblem(reply.header('x-content-type-options', 'nosniff'), error, deps.log)
    }
  }).withTypeProvider<Typed>()

  guardServer(app.server)
  const connections = connectionLimiter({ ...connectionLimits(), ...limits }, proxyCheck(trusted), deps.log)
  connections.guard(app.server)
  app.setValidatorCompiler(validatorCompiler)
  app.setSerializerCompiler(serializerCompiler)
  app.setErrorHandler((error, _request, reply) => sendProblem(reply, error, deps.log))
  app.decorateRequest('caller', null)
  // Health checks must get the true state even if the process is slow or full.
  const watched = new Set<string | undefined>(['/healthz', '/readyz', '/metrics'])
  const loop = loopWatch(loopDelayMs)
  app.addHook('onRequest', ({ raw, routeOptions }, reply, done) => {
    connections.begin(raw, reply.raw, isSpare => {
      if (isSpare) void reply.header('connection', 'close')
      if (watched.has(routeOptions.url)) return done()
      done(isSpare ? crowded() : loop.isLate() ? new Unavailable('the process is overloaded', 2) : undefined)
    })
  })
  let closing = false
  app.addHook('onRequest', checkRequest)
  app.addHook('onRequest', originGuard(deps))
  app.addHook('onRequest', (_request, _reply, done) =>
    done(closing ? new Unavailable('the process is stopping') : undefined)
  )
  app.addHook('preClose', done => {
    closing = true
    closeInTime(app.server)
    done()
  })

  app.addHook('preParsing', bodyRoom(deps))
  // Bytes, not values: only the strict reader keeps the posted text (json/reader.ts).
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, bytes, done) =>
    done(null, bytes)
  )

  app.addContentTypeParser('*', takeNoContent)

  // Without it, each request during an outage would add a statement that waits in memory until PostgreSQL is back.
  const reachable = (_request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void) =>
    done(deps.isDatabaseUnreachable() ? new Unavailable() : undefined)
  app.addHook('onRoute', route => {
    for (const method of [route.method].flat()) {
      const needed = accessTo(method, route.url)
      if (!needed) throw new Error(`${method} ${route.url} is not in api/access.ts: add its scopes`)
      known.add(method, route.url)
      if (needed !== 'open') route.onRequest = [keyed(needed, acts[`${method} ${route.url}`])]
      if ((needed !== 'open' && !watched.has(route.url)) || route.url === '/session')
        route.onRequest = [reachable, ...[route.onRequest ?? []].flat()]
    }
    refuseBody(route)
    refuseQuery(route)
  })
  const absent = (request: FastifyRequest) => {
    const allow = known.allowed(originForm(request.raw.url ?? ''))
    // A page of the docs that does not exist: its route has the method, but there is no page.
    return allow === null || allow.split(', ').includes(request.method)
      ? new Problem('NOT_FOUND')
      : new Problem('METHOD_NOT_ALLOWED', '', { headers: { allow } })
  }
  // Before Fastify checks the type of a body that no route reads: the type is not the error.
  app.addHook('onRequest', (request, _reply, done) => done(request.is404 ? absent(request) : undefined))
  app.setNotFoundHandler((request, reply) => sendProblem(reply, absent(request), deps.log))

  app.addHook('onClose', (_app, done) => {
    loop.stop()
    connections.stop()
    done()
  })
  return app
}

const crowded = () =>
  new Problem('UNAVAILABLE', 'all connections are taken', { headers: { 'retry-after': '1' } })
