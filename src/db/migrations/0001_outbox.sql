CREATE TABLE "outbox" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"task_no" text,
	"message_code" text,
	"scene_type" text,
	"message_body" text,
	"deliver_start_time" timestamp with time zone,
	"delay" interval,
	"deliver_before" timestamp with time zone,
	"ordering_key" text,
	"need_callback" boolean,
	"retry_times" integer,
	"biz_type" text,
	"biz_key" text,
	"extend" jsonb,
	"members" jsonb,
	"traceparent" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"created_by" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "outbox_lease" (
	"shard" smallint PRIMARY KEY NOT NULL,
	"owner" text NOT NULL,
	"until" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "outbox_rejected" (
	"id" uuid PRIMARY KEY NOT NULL,
	"task_no" text,
	"message_code" text,
	"scene_type" text,
	"message_body" text,
	"deliver_start_time" timestamp with time zone,
	"delay" interval,
	"deliver_before" timestamp with time zone,
	"ordering_key" text,
	"need_callback" boolean,
	"retry_times" integer,
	"biz_type" text,
	"biz_key" text,
	"extend" jsonb,
	"members" jsonb,
	"traceparent" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"created_by" text NOT NULL,
	"problem" jsonb NOT NULL,
	"rejected_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "alarm" DROP CONSTRAINT "alarm_kind_check";--> statement-breakpoint
ALTER TABLE "alarm" ADD CONSTRAINT "alarm_kind_check" CHECK ("alarm"."kind" in ('FAILED', 'NO_HANDLER', 'BLOCKED_TARGET', 'TLS', 'REJECTED')) NOT VALID;--> statement-breakpoint
ALTER TABLE "alarm" VALIDATE CONSTRAINT "alarm_kind_check";
--> statement-breakpoint
-- by hand
CREATE SCHEMA "ackbox_api";
--> statement-breakpoint
-- Nothing a producer says is refused here: an error would end its transaction for what it can mend later.
CREATE FUNCTION "ackbox_api"."enqueue"(
	message_code text, message_body text, task_no text DEFAULT NULL, scene_type text DEFAULT '',
	deliver_start_time timestamptz DEFAULT NULL, delay interval DEFAULT NULL, deliver_before timestamptz DEFAULT NULL,
	ordering_key text DEFAULT NULL, need_callback boolean DEFAULT NULL, retry_times int DEFAULT NULL,
	biz_type text DEFAULT NULL, biz_key text DEFAULT NULL, extend jsonb DEFAULT NULL, traceparent text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	-- Not a number made of the body: two equal events that were both committed are two.
	named text := coalesce(task_no, gen_random_uuid()::text);
BEGIN
	INSERT INTO outbox (
		task_no, message_code, scene_type, message_body, deliver_start_time, delay, deliver_before, ordering_key,
		need_callback, retry_times, biz_type, biz_key, extend, traceparent, created_by
	) VALUES (
		named, message_code, scene_type, message_body, deliver_start_time, delay, deliver_before, ordering_key,
		need_callback, retry_times, biz_type, biz_key, extend, traceparent, 'sql:' || session_user
	);
	RETURN named;
END
$$;
--> statement-breakpoint
CREATE FUNCTION "ackbox_api"."enqueue"(
	message_code text, message_body jsonb, task_no text DEFAULT NULL, scene_type text DEFAULT '',
	deliver_start_time timestamptz DEFAULT NULL, delay interval DEFAULT NULL, deliver_before timestamptz DEFAULT NULL,
	ordering_key text DEFAULT NULL, need_callback boolean DEFAULT NULL, retry_times int DEFAULT NULL,
	biz_type text DEFAULT NULL, biz_key text DEFAULT NULL, extend jsonb DEFAULT NULL, traceparent text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	RETURN ackbox_api.enqueue(
		message_code, message_body::text, task_no, scene_type, deliver_start_time, delay, deliver_before, ordering_key,
		need_callback, retry_times, biz_type, biz_key, extend, traceparent
	);
END
$$;
--> statement-breakpoint
-- Tasks as POST /tasks/batch takes them. A member that should be text and is none stays as it was said, to be refused as such.
CREATE FUNCTION "ackbox_api"."enqueue_many"(tasks jsonb) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	IF jsonb_typeof(tasks) IS DISTINCT FROM 'array' OR EXISTS (
		SELECT FROM jsonb_array_elements(tasks) AS e (task) WHERE jsonb_typeof(task) <> 'object'
	) THEN
		RAISE EXCEPTION 'tasks must be a JSON array of objects' USING ERRCODE = '22023';
	END IF;
	RETURN QUERY
		INSERT INTO outbox (
			task_no, message_code, scene_type, ordering_key, traceparent, message_body, members, created_by
		)
		SELECT coalesce(texts->>'taskNo', gen_random_uuid()::text), texts->>'messageCode', texts->>'sceneType',
			texts->>'orderingKey', texts->>'traceparent', (task->'messageBody')::text, members, 'sql:' || session_user
		FROM jsonb_array_elements(tasks) WITH ORDINALITY AS e (task, n)
			CROSS JOIN LATERAL (
				SELECT jsonb_object_agg(key, value) FILTER (WHERE apart) AS texts,
					jsonb_object_agg(key, value) FILTER (WHERE NOT apart AND key <> 'messageBody') AS members
				FROM (
					SELECT key, value, jsonb_typeof(value) = 'string'
						AND key IN ('taskNo', 'messageCode', 'sceneType', 'orderingKey', 'traceparent') AS apart
					FROM jsonb_each(task)
				) m
			) s
		ORDER BY n
		RETURNING outbox.task_no;
END
$$;
--> statement-breakpoint
-- A caller's own search_path, or its temporary tables, must not say what the names in them mean.
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'ackbox_api'::regnamespace LOOP
		EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', f, current_schema());
		EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
	END LOOP;
END
$$;
