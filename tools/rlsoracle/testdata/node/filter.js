// A model of Envoy's rate limit filter, on another implementation of gRPC than ours. Each line of the standard input is a
// request of the filter's to make, and each line of the output is the response that the client of Envoy gets.
//
//   node filter.js HOST:PORT DESCRIPTORS
//
// DESCRIPTORS is a file with a FileDescriptorSet. Where it says "Envoy", it is ratelimit.cc and ratelimit_headers.cc.
'use strict';

const fs = require('node:fs');
const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [address, descriptors] = process.argv.slice(2);
const definition = loader.loadFileDescriptorSetFromBuffer(fs.readFileSync(descriptors), {
  keepCase: true, longs: Number, enums: String, defaults: true,
});
const service = grpc.loadPackageDefinition(definition).envoy.service.ratelimit.v3.RateLimitService;
const client = new service(address, grpc.credentials.createInsecure(), {
  'grpc.initial_reconnect_backoff_ms': 50, 'grpc.max_reconnect_backoff_ms': 200,
});

const seconds = {SECOND: 1, MINUTE: 60, HOUR: 3600, DAY: 86400, WEEK: 604800, MONTH: 2592000, YEAR: 31536000};

// quota returns the headers of enable_x_ratelimit_headers: DRAFT_VERSION_03.
function quota(statuses) {
  const limits = statuses.filter((s) => s.current_limit);
  if (limits.length === 0) return {};
  const least = limits.reduce((a, b) => (b.limit_remaining < a.limit_remaining ? b : a));
  const policies = limits.map(({current_limit: l}) => {
    const w = seconds[l.unit] ? `;w=${seconds[l.unit]}` : '';
    return `, ${l.requests_per_unit}${w}${l.name ? `;name="${l.name}"` : ''}`;
  });
  return {
    'x-ratelimit-limit': least.current_limit.requests_per_unit + policies.join(''),
    'x-ratelimit-remaining': String(least.limit_remaining),
    'x-ratelimit-reset': String(least.duration_until_reset ? least.duration_until_reset.seconds : 0),
  };
}

// decide returns what Envoy does with an answer of the service.
function decide(options, err, answer) {
  if (err) {
    const failed = {code: grpc.status[err.code], failure_mode_allowed: !options.failure_mode_deny};
    return {status: options.failure_mode_deny ? 500 : 200, headers: {}, body: '', ...failed};
  }
  const headers = quota(answer.statuses);
  for (const h of answer.response_headers_to_add) headers[h.key.toLowerCase()] = h.value || h.raw_value.toString();
  if (answer.overall_code !== 'OVER_LIMIT') return {status: 200, headers, body: ''};
  headers['x-envoy-ratelimited'] = 'true';
  headers['content-type'] ||= 'text/plain';
  // enable_retry_after_header
  const resets = answer.statuses.filter((s) => s.code === 'OVER_LIMIT' && s.duration_until_reset).map((s) => s.duration_until_reset.seconds);
  if (!headers['retry-after'] && resets.length > 0) headers['retry-after'] = String(Math.max(1, ...resets));
  return {status: 429, headers, body: answer.raw_body.toString()};
}

readline.createInterface({input: process.stdin}).on('line', (line) => {
  const {request, options = {}} = JSON.parse(line);
  const began = process.hrtime.bigint();
  client.ShouldRateLimit(request, {deadline: Date.now() + (options.timeout_ms ?? 20)}, (err, answer) => {
    const took = Number(process.hrtime.bigint() - began) / 1e6;
    console.log(JSON.stringify({...decide(options, err, answer), took_ms: took}));
  });
}).on('close', () => client.close());
