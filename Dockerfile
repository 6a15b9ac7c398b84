# Compiles, then keeps what runs: no compiler, no tests, no embedded PostgreSQL (DATABASE_URL is required here).
# `npm run test:image` builds this very file and starts what comes out.
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY patches patches
RUN npm ci
COPY tsconfig.json tsconfig.build.json bundle-ui.mjs ./
COPY src src
COPY handlers handlers
RUN npm run -s build:package
# The clients of all transports stay: a read-only container cannot get them later. What only builds and tests goes, and
# so do the optional packages: PostgreSQL's binaries, and native speed-ups that fall back to JavaScript.
RUN npm install --omit=dev --omit=optional --ignore-scripts --save-prod \
  $(node -p "const { peerDependencies, devDependencies } = require('./package.json'); \
    Object.keys(peerDependencies).map(name => name + '@' + devDependencies[name]).join(' ')")

FROM node:24-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000
WORKDIR /app
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
COPY src/db/migrations src/db/migrations
COPY docs docs
RUN ln -s /app/dist/src/cli/ackbox.js /usr/local/bin/ackbox
USER node
EXPOSE 3000
STOPSIGNAL SIGTERM
CMD ["ackbox", "start"]
