-- attempt and receipt become partitioned by task_id, a uuid v7, which begins with its time. The tables of before are the first
-- partition: they are renamed, not copied. Attaching reads each once; what is locked by then stays so to the end of the transaction.
CREATE FUNCTION "lowest_id"(at timestamptz) RETURNS uuid LANGUAGE sql STABLE AS $$
	SELECT (lpad(to_hex(greatest(0, extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
--> statement-breakpoint
CREATE FUNCTION "day_of_id"(id uuid) RETURNS timestamptz LANGUAGE sql STABLE AS $$
	SELECT date_trunc('day', to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0), 'UTC')
$$;
--> statement-breakpoint
-- `low` is null where a partition begins at MINVALUE.
CREATE FUNCTION "partitions_of"(parent text) RETURNS TABLE (name text, low uuid, high uuid) LANGUAGE sql STABLE AS $$
	SELECT c.relname::text, substring(b.bound FROM 'FROM \(''([^'']+)''\)')::uuid, substring(b.bound FROM 'TO \(''([^'']+)''\)')::uuid
	FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid CROSS JOIN LATERAL pg_get_expr(c.relpartbound, c.oid) AS b (bound)
	WHERE i.inhparent = parent::regclass
$$;
--> statement-breakpoint
-- The one for the day of this id; null: it was there. Attaching blocks neither reads nor writes.
CREATE FUNCTION "make_partition"(parent text, id uuid) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '2s' AS $$
DECLARE
	day timestamptz := day_of_id(id);
	made text := parent || '_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
	IF parent NOT IN ('attempt', 'receipt') THEN
		RAISE EXCEPTION '% has no partitions', parent USING ERRCODE = '22023';
	END IF;
	-- Two that make the same one wait here for each other.
	EXECUTE format('LOCK TABLE %I IN SHARE UPDATE EXCLUSIVE MODE', parent);
	IF EXISTS (SELECT FROM partitions_of(parent) p WHERE (p.low IS NULL OR p.low <= id) AND id < p.high) THEN
		RETURN NULL;
	END IF;
	EXECUTE format('CREATE TABLE %s.%I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
		(SELECT relnamespace::regnamespace FROM pg_class WHERE oid = parent::regclass), made, parent);
	EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
		parent, made, lowest_id(day), lowest_id(day + interval '1 day'));
	RETURN made;
END
$$;
--> statement-breakpoint
-- True: it is gone. Never one of today or later, and never while there is a task that may have rows in it: under the lock nobody
-- can add any.
CREATE FUNCTION "drop_partition"(parent text, part text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '100ms' AS $$
DECLARE
	bounds record;
BEGIN
	IF parent NOT IN ('attempt', 'receipt') THEN
		RAISE EXCEPTION '% has no partitions', parent USING ERRCODE = '22023';
	END IF;
	EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent);
	SELECT p.low, p.high INTO bounds FROM partitions_of(parent) p WHERE p.name = part AND p.high <= lowest_id(now());
	IF NOT FOUND OR EXISTS (
		SELECT FROM task WHERE task.id >= coalesce(bounds.low, '00000000-0000-0000-0000-000000000000') AND task.id < bounds.high
	) THEN
		RETURN false;
	END IF;
	EXECUTE format('DROP TABLE %I', part);
	RETURN true;
END
$$;
--> statement-breakpoint
-- As in the functions of the outbox: a caller's own search_path must not say what the names mean.
DO $$
DECLARE
	f text;
BEGIN
	FOREACH f IN ARRAY ARRAY['make_partition(text, uuid)', 'drop_partition(text, text)'] LOOP
		EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', f, current_schema());
	END LOOP;
END
$$;
--> statement-breakpoint
ALTER TABLE "receipt" DROP CONSTRAINT "receipt_pkey";
--> statement-breakpoint
ALTER TABLE "receipt" ADD CONSTRAINT "receipt_first_pkey" PRIMARY KEY ("task_id", "id");
--> statement-breakpoint
DROP INDEX "receipt_delivery_idx";
--> statement-breakpoint
ALTER TABLE "attempt" RENAME CONSTRAINT "attempt_pkey" TO "attempt_first_pkey";
--> statement-breakpoint
ALTER TABLE "attempt" RENAME TO "attempt_first";
--> statement-breakpoint
ALTER TABLE "receipt" RENAME TO "receipt_first";
--> statement-breakpoint
CREATE TABLE "attempt" (LIKE "attempt_first" INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE,
	CONSTRAINT "attempt_pkey" PRIMARY KEY ("task_id", "downstream", "attempt")) PARTITION BY RANGE ("task_id");
--> statement-breakpoint
CREATE TABLE "receipt" (LIKE "receipt_first" INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE,
	CONSTRAINT "receipt_pkey" PRIMARY KEY ("task_id", "id")) PARTITION BY RANGE ("task_id");
--> statement-breakpoint
-- Else it would go with the first partition.
ALTER SEQUENCE "receipt_id_seq" OWNED BY "receipt"."id";
--> statement-breakpoint
DO $$
DECLARE
	parent text;
	upto timestamptz;
	newest uuid;
	allowed record;
BEGIN
	FOREACH parent IN ARRAY ARRAY['attempt', 'receipt'] LOOP
		-- To the end of tomorrow, or of the day of a task that a wrong clock put later.
		EXECUTE format('SELECT task_id FROM %I ORDER BY task_id DESC LIMIT 1', parent || '_first') INTO newest;
		upto := date_trunc('day', now(), 'UTC') + interval '2 days';
		IF newest >= lowest_id(upto) THEN
			upto := day_of_id(newest) + interval '1 day';
		END IF;
		EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', parent, parent || '_first', lowest_id(upto));
		-- Processes of before make none: enough for an upgrade that takes a week.
		FOR n IN 2..8 LOOP
			PERFORM make_partition(parent, lowest_id(date_trunc('day', now(), 'UTC') + n * interval '1 day'));
		END LOOP;
		-- Who may do what: rights on the partitioned table are what counts.
		FOR allowed IN
			SELECT a.privilege_type, a.is_grantable, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
			FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
			WHERE c.oid = (parent || '_first')::regclass AND a.grantee <> c.relowner
		LOOP
			EXECUTE format('GRANT %s ON %I TO %s', allowed.privilege_type, parent, allowed.grantee)
				|| CASE WHEN allowed.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END;
		END LOOP;
	END LOOP;
END
$$;
