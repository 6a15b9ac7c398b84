CREATE TABLE "alarm_channel" (
	"name" text PRIMARY KEY NOT NULL,
	"free_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "alarm_group" (
	"channel" text NOT NULL,
	"downstream" text NOT NULL,
	"kind" text NOT NULL,
	"next_action_at" timestamp with time zone DEFAULT now() NOT NULL,
	"tries" integer DEFAULT 0 NOT NULL,
	"told_at" timestamp with time zone,
	"opened_at" timestamp with time zone,
	CONSTRAINT "alarm_group_pkey" PRIMARY KEY("channel","downstream","kind")
);
--> statement-breakpoint
CREATE TABLE "alarm_send" (
	"channel" text NOT NULL,
	"downstream" text NOT NULL,
	"kind" text NOT NULL,
	"task_id" uuid NOT NULL,
	"attempt" integer NOT NULL,
	"task_no" text NOT NULL,
	"message_code" text NOT NULL,
	"reason" text,
	"raised_at" timestamp with time zone NOT NULL,
	"sent_at" timestamp with time zone,
	CONSTRAINT "alarm_send_pkey" PRIMARY KEY("channel","downstream","kind","task_id","attempt")
);
--> statement-breakpoint
CREATE TABLE "failure" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"task_id" uuid NOT NULL,
	"downstream" text NOT NULL,
	"attempt" integer NOT NULL,
	"message_code" text NOT NULL,
	"fingerprint" text NOT NULL,
	"reason" text NOT NULL,
	"status_code" integer,
	"line" text,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "failure_archive" (
	"fingerprint" text PRIMARY KEY NOT NULL,
	"note" text NOT NULL,
	"archived_at" timestamp with time zone DEFAULT now() NOT NULL,
	"archived_by" text NOT NULL,
	"last_failure_id" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "operation" (
	"id" uuid PRIMARY KEY NOT NULL,
	"state" text DEFAULT 'RUNNING' NOT NULL,
	"filter" jsonb NOT NULL,
	"message_codes" text[],
	"matched" integer NOT NULL,
	"redelivered" integer DEFAULT 0 NOT NULL,
	"skipped" integer DEFAULT 0 NOT NULL,
	"cursors" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"owner" text,
	"leased_until" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"created_by" text NOT NULL,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp with time zone,
	"ended_by" text,
	CONSTRAINT "operation_state_check" CHECK ("operation"."state" in ('RUNNING', 'STOPPED', 'DONE')),
	CONSTRAINT "operation_ended_check" CHECK (("operation"."state" = 'RUNNING') = ("operation"."ended_at" is null))
);
--> statement-breakpoint
CREATE TABLE "operation_delivery" (
	"operation_id" uuid NOT NULL,
	"task_id" uuid NOT NULL,
	"downstream" text NOT NULL,
	"attempt" integer NOT NULL,
	"result" text,
	CONSTRAINT "operation_delivery_pkey" PRIMARY KEY("operation_id","task_id","downstream"),
	CONSTRAINT "operation_delivery_result_check" CHECK ("operation_delivery"."result" in ('redelivered', 'skipped'))
);
--> statement-breakpoint
CREATE TABLE "ordering" (
	"downstream" text NOT NULL,
	"ordering_key" text NOT NULL,
	"next" bigint NOT NULL,
	"head" bigint,
	"held_at" timestamp with time zone,
	CONSTRAINT "ordering_pkey" PRIMARY KEY("downstream","ordering_key")
);
--> statement-breakpoint
CREATE TABLE "promotion" (
	"downstream" text NOT NULL,
	"ordering_key" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "reconciliation" (
	"message_code" text NOT NULL,
	"downstream" text NOT NULL,
	"next_at" timestamp with time zone NOT NULL,
	"owner" text,
	"until" timestamp with time zone,
	"compared_to" timestamp with time zone NOT NULL,
	"ran_at" timestamp with time zone,
	"missing" integer,
	"differs" integer,
	"unknown" integer,
	"unknown_task_nos" text[],
	"unknown_alarm" uuid,
	"error" text,
	CONSTRAINT "reconciliation_pkey" PRIMARY KEY("message_code","downstream")
);
--> statement-breakpoint
CREATE TABLE "session" (
	"hash" text PRIMARY KEY NOT NULL,
	"key_id" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "stat_minute" (
	"minute" timestamp with time zone NOT NULL,
	"node" text NOT NULL,
	"downstream" text NOT NULL,
	"message_code" text NOT NULL,
	"accepted" integer NOT NULL,
	"attempts" integer NOT NULL,
	"failed_attempts" integer NOT NULL,
	"handled" integer NOT NULL,
	"direct" integer NOT NULL,
	"failed" integer NOT NULL,
	"exhausted" integer NOT NULL,
	"handled_ms" integer[] NOT NULL,
	CONSTRAINT "stat_minute_pkey" PRIMARY KEY("minute","node","downstream","message_code")
);
--> statement-breakpoint
ALTER TABLE "alarm" DROP CONSTRAINT "alarm_kind_check";--> statement-breakpoint
ALTER TABLE "attempt" DROP CONSTRAINT "attempt_outcome_check";--> statement-breakpoint
ALTER TABLE "delivery" DROP CONSTRAINT "delivery_handled_by_check";--> statement-breakpoint
ALTER TABLE "attempt" ADD COLUMN "message_id" text;--> statement-breakpoint
ALTER TABLE "delivery" ADD COLUMN "ordering_key" text;--> statement-breakpoint
ALTER TABLE "delivery" ADD COLUMN "position" bigint;--> statement-breakpoint
ALTER TABLE "delivery" ADD COLUMN "round" smallint;--> statement-breakpoint
ALTER TABLE "delivery" ADD COLUMN "round_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "downstream" ADD COLUMN "concurrency" integer;--> statement-breakpoint
ALTER TABLE "downstream" ADD COLUMN "per_second" integer;--> statement-breakpoint
ALTER TABLE "downstream" ADD COLUMN "limits_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "downstream" ADD COLUMN "limits_by" text;--> statement-breakpoint
ALTER TABLE "node" ADD COLUMN "started_at" timestamp with time zone DEFAULT now() NOT NULL;--> statement-breakpoint
ALTER TABLE "node" ADD COLUMN "secrets" text[];--> statement-breakpoint
ALTER TABLE "node" ADD COLUMN "queue" text;--> statement-breakpoint
ALTER TABLE "node" ADD COLUMN "handlers" text;--> statement-breakpoint
ALTER TABLE "node" ADD COLUMN "reached" jsonb;--> statement-breakpoint
ALTER TABLE "node" ADD COLUMN "yielded" jsonb;--> statement-breakpoint
CREATE INDEX "alarm_send_unsent_idx" ON "alarm_send" USING btree ("channel","downstream","kind") WHERE "alarm_send"."sent_at" is null;--> statement-breakpoint
CREATE INDEX "failure_delivery_idx" ON "failure" USING btree ("task_id","downstream","id");--> statement-breakpoint
CREATE INDEX "failure_fingerprint_idx" ON "failure" USING btree ("fingerprint","id");--> statement-breakpoint
CREATE INDEX "failure_created_idx" ON "failure" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "operation_running_idx" ON "operation" USING btree ("id") WHERE "operation"."state" = 'RUNNING';--> statement-breakpoint
CREATE INDEX "ordering_held_idx" ON "ordering" USING btree ("downstream","ordering_key") WHERE "ordering"."held_at" is not null;--> statement-breakpoint
CREATE INDEX "promotion_key_idx" ON "promotion" USING btree ("downstream","ordering_key");--> statement-breakpoint
CREATE INDEX "session_expires_idx" ON "session" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "audit_target_idx" ON "audit" USING btree ("target","id");--> statement-breakpoint
CREATE UNIQUE INDEX "delivery_position_key" ON "delivery" USING btree ("downstream","ordering_key","position") WHERE "delivery"."ordering_key" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "delivery_head_key" ON "delivery" USING btree ("downstream","ordering_key") WHERE "delivery"."position" > 0 and "delivery"."phase" in ('WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT');--> statement-breakpoint
-- by hand: NOT VALID, or the tables would be read under the lock that adding one takes
ALTER TABLE "alarm" ADD CONSTRAINT "alarm_kind_check" CHECK ("alarm"."kind" in ('FAILED', 'NO_HANDLER', 'BLOCKED_TARGET', 'TLS', 'REJECTED', 'DEPENDENCY_FAILED', 'PREPARED_STUCK', 'KEY_HELD', 'MISMATCH')) NOT VALID;--> statement-breakpoint
ALTER TABLE "attempt" ADD CONSTRAINT "attempt_outcome_check" CHECK ("attempt"."outcome" in ('delivered', 'probed', 'refused', 'failed')) NOT VALID;--> statement-breakpoint
ALTER TABLE "delivery" ADD CONSTRAINT "delivery_position_check" CHECK (("delivery"."ordering_key" is null) = ("delivery"."position" is null) and "delivery"."position" is distinct from 0) NOT VALID;--> statement-breakpoint
ALTER TABLE "delivery" ADD CONSTRAINT "delivery_blocked_in_order" CHECK ("delivery"."position" > 0 or "delivery"."phase" is distinct from 'BLOCKED') NOT VALID;--> statement-breakpoint
ALTER TABLE "delivery" ADD CONSTRAINT "delivery_handled_by_check" CHECK ("delivery"."handled_by" in ('send', 'answer', 'receipt', 'probe', 'operator')) NOT VALID;--> statement-breakpoint
ALTER TABLE "alarm" VALIDATE CONSTRAINT "alarm_kind_check";--> statement-breakpoint
ALTER TABLE "attempt" VALIDATE CONSTRAINT "attempt_outcome_check";--> statement-breakpoint
ALTER TABLE "delivery" VALIDATE CONSTRAINT "delivery_position_check";--> statement-breakpoint
ALTER TABLE "delivery" VALIDATE CONSTRAINT "delivery_blocked_in_order";--> statement-breakpoint
ALTER TABLE "delivery" VALIDATE CONSTRAINT "delivery_handled_by_check";
--> statement-breakpoint
-- by hand
-- Nobody knows when the round of these began: it begins now.
UPDATE "delivery" SET "round_at" = now() WHERE "status" = 0 AND ("round_from" > 1 OR "created_at" < now() - interval '1 day');
--> statement-breakpoint
-- Whatever ends a delivery leaves word in the same transaction that the next of its key may go. Without a key the condition is all it costs.
CREATE FUNCTION "leave_promotion"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO promotion (downstream, ordering_key) VALUES (new.downstream, new.ordering_key);
	RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER "delivery_leaves_promotion" AFTER UPDATE OF status ON "delivery" FOR EACH ROW
WHEN (new.position > 0 AND new.status <> old.status AND (new.status <> 0 OR new.phase = 'BLOCKED'))
EXECUTE FUNCTION "leave_promotion"();
--> statement-breakpoint
-- Lets the lowest of each of these keys go. Volatile, and so each statement in it sees what was committed before it began: the keys are
-- locked first, and only then is looked, or one that was accepted meanwhile would stay BLOCKED. `lease_ms` is null where none may be claimed,
-- `skips` where one that FAILED does not hold the key.
CREATE FUNCTION "promote"(downstreams text[], ordering_keys text[], lease_ms float8[], skips boolean[])
RETURNS TABLE (
	task_id uuid, downstream text, attempt int, phase text, tries_left smallint, lost smallint, needs_receipt boolean, "position" bigint,
	deliver_before timestamptz, round_from int, round int, round_at timestamptz
)
-- Of one key a plan made anew costs more than all that it does.
LANGUAGE plpgsql SET plan_cache_mode = 'force_generic_plan' AS $$
#variable_conflict use_column
BEGIN
	PERFORM FROM (
		SELECT * FROM unnest(downstreams, ordering_keys) AS k (downstream, ordering_key) ORDER BY 1, 2
	) k CROSS JOIN LATERAL (
		SELECT FROM ordering o WHERE o.downstream = k.downstream AND o.ordering_key = k.ordering_key FOR UPDATE
	) o;
	-- Before the look and not after it: what is left after this was left by an end that the look may not see.
	DELETE FROM promotion WHERE ctid = ANY (ARRAY(
		SELECT p.place FROM unnest(downstreams, ordering_keys) AS k (downstream, ordering_key) CROSS JOIN LATERAL (
			SELECT ctid AS place FROM promotion
			WHERE downstream = k.downstream AND ordering_key = k.ordering_key OFFSET 0
		) p
	));
	-- One after the other: that one FAILED is only certain when its row is locked.
	WHILE true = ANY (skips) LOOP
		WITH failed AS (
			SELECT o.downstream, f.task_id
			FROM unnest(downstreams, ordering_keys, skips) AS k (downstream, ordering_key, skip)
			CROSS JOIN LATERAL (
				SELECT * FROM ordering WHERE downstream = k.downstream AND ordering_key = k.ordering_key OFFSET 0
			) o CROSS JOIN LATERAL (
				SELECT d.task_id, d.status FROM delivery d
				WHERE d.downstream = o.downstream AND d.ordering_key = o.ordering_key AND d.position >= o.head AND d.status IN (0, 2)
				ORDER BY d.position LIMIT 1
			) f
			WHERE k.skip AND f.status = 2
		), locked AS MATERIALIZED (
			SELECT d.task_id, d.downstream FROM failed f JOIN delivery d ON d.task_id = f.task_id AND d.downstream = f.downstream
			WHERE d.status = 2
			ORDER BY d.task_id, d.downstream
			FOR NO KEY UPDATE OF d
		)
		UPDATE delivery d SET position = -d.position, updated_at = now()
		FROM locked l WHERE d.task_id = l.task_id AND d.downstream = l.downstream;
		EXIT WHEN NOT found;
	END LOOP;
	RETURN QUERY
	WITH head AS MATERIALIZED (
		SELECT o.downstream, o.ordering_key, o.head AS was, o.held_at, k.lease_ms, f.task_id, f.position, f.status, f.phase, f.attempt
		FROM unnest(downstreams, ordering_keys, lease_ms) AS k (downstream, ordering_key, lease_ms)
		CROSS JOIN LATERAL (
			SELECT * FROM ordering
			WHERE downstream = k.downstream AND ordering_key = k.ordering_key AND head IS NOT NULL OFFSET 0
		) o LEFT JOIN LATERAL (
			SELECT d.task_id, d.position, d.status, d.phase, d.attempt FROM delivery d
			WHERE d.downstream = o.downstream AND d.ordering_key = o.ordering_key AND d.position >= o.head AND d.status IN (0, 2)
			ORDER BY d.position LIMIT 1
		) f ON true
	), kept AS (
		UPDATE ordering o SET head = h.position, held_at = CASE WHEN h.status = 2 THEN coalesce(o.held_at, now()) END
		FROM head h
		WHERE o.downstream = h.downstream AND o.ordering_key = h.ordering_key
			AND (h.position IS DISTINCT FROM h.was OR (h.held_at IS NOT NULL) <> (h.status IS NOT DISTINCT FROM 2))
	), alarmed AS (
		INSERT INTO alarm (task_id, downstream, attempt, kind)
		SELECT h.task_id, h.downstream, h.attempt, 'KEY_HELD' FROM head h
		WHERE h.status = 2 AND (h.held_at IS NULL OR h.position <> h.was)
		ON CONFLICT (task_id, downstream, attempt, kind) DO UPDATE
			SET resolved_at = NULL, sent_at = NULL, tries = 0, next_action_at = now(), created_at = now()
			WHERE alarm.resolved_at IS NOT NULL
	), resolved AS (
		UPDATE alarm a SET resolved_at = now()
		FROM head h CROSS JOIN LATERAL (
			SELECT d.task_id FROM delivery d
			WHERE d.downstream = h.downstream AND d.ordering_key = h.ordering_key AND d.position IN (h.was, -h.was) OFFSET 0
		) d
		WHERE h.held_at IS NOT NULL AND (h.status IS DISTINCT FROM 2 OR h.position <> h.was)
			AND a.task_id = d.task_id AND a.downstream = h.downstream AND a.kind = 'KEY_HELD' AND a.resolved_at IS NULL
	), locked AS MATERIALIZED (
		SELECT d.task_id, d.downstream, h.lease_ms, greatest(now(), least(coalesce(t.deliver_start_time, now()), d.deliver_before)) AS due,
			d.deliver_before
		FROM head h CROSS JOIN LATERAL (SELECT deliver_start_time FROM task WHERE id = h.task_id OFFSET 0) t
		JOIN delivery d ON d.task_id = h.task_id AND d.downstream = h.downstream
		WHERE h.phase = 'BLOCKED' AND d.phase = 'BLOCKED'
			AND NOT EXISTS (SELECT FROM dependency x WHERE x.task_id = h.task_id AND x.done_at IS NULL)
		ORDER BY d.task_id, d.downstream
		FOR NO KEY UPDATE OF d
	), moved AS (
		UPDATE delivery d SET
			phase = CASE WHEN c.claimed THEN 'IN_FLIGHT' ELSE 'WAITING' END,
			attempt = CASE WHEN c.claimed THEN d.attempt + 1 ELSE d.attempt END,
			tries_left = CASE WHEN c.claimed THEN d.tries_left - 1 ELSE d.tries_left END,
			next_action_at = CASE WHEN c.claimed THEN now() + c.lease_ms * interval '1 ms' ELSE c.due END,
			updated_at = now(), round_at = CASE WHEN c.claimed AND d.attempt < d.round_from THEN now() ELSE d.round_at END
		FROM (
			SELECT *, lease_ms IS NOT NULL AND due <= now() AND (deliver_before IS NULL OR deliver_before > now()) AS claimed
			FROM locked
		) c
		WHERE d.task_id = c.task_id AND d.downstream = c.downstream
		RETURNING d.*
	)
	SELECT m.task_id, m.downstream, m.attempt, m.phase, m.tries_left, m.lost, m.needs_receipt, m.position, m.deliver_before,
		m.round_from::int, coalesce(m.round, 1)::int, coalesce(m.round_at, m.created_at)
	FROM moved m;
END
$$;
--> statement-breakpoint
-- Passes the FAILED head of a held key: from now on it is out of order. Null where the key is not held.
CREATE FUNCTION "release_key"(name text, key text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	passed uuid;
BEGIN
	PERFORM FROM ordering WHERE downstream = name AND ordering_key = key FOR UPDATE;
	UPDATE delivery d SET position = -d.position, updated_at = now()
	FROM ordering o
	WHERE o.downstream = name AND o.ordering_key = key AND o.held_at IS NOT NULL
		AND d.downstream = name AND d.ordering_key = key AND d.position = o.head AND d.status = 2
	RETURNING d.task_id INTO passed;
	IF passed IS NOT NULL THEN
		INSERT INTO promotion (downstream, ordering_key) VALUES (name, key);
	END IF;
	RETURN passed;
END
$$;
--> statement-breakpoint
INSERT INTO failure (task_id, downstream, attempt, message_code, fingerprint, reason, created_at)
SELECT d.task_id, d.downstream, d.attempt, t.message_code,
	left(md5(d.downstream || chr(10) || d.reason || chr(10) || chr(10)), 16), d.reason, d.updated_at
FROM delivery d JOIN task t ON t.id = d.task_id
WHERE d.status = 2
ORDER BY d.updated_at;
