//! TPC-H's `part` and `lineitem`, and Q17 as the paper's background work: in a
//! loop, inside the server (Section 3).
//!
//! Q17 compares each line of a few parts with the average of its part, so with
//! an index on `l_partkey` it is one scan of `part` and many short index scans:
//! CPU-bound, and full of PostgreSQL's own shared structures.
//!
//! The loop is a procedure that commits after every query. A function, as in
//! the paper, would hold one snapshot for the whole run; the old row versions
//! that it keeps alive slow TPC-C down under every scheduler, for a reason that
//! is not scheduling. Progress is published as a notice after each query: one
//! small message that the client stamps with its time.

use tpchgen::generators::{LineItemGenerator, PartGenerator};

use super::{DatasetSpec, writer};
use crate::harness::Progress;
use crate::harness::error::Result;
use crate::workload::postgres::Session;

const CREATE_PART: &str = "CREATE TABLE part (p_partkey bigint NOT NULL, p_name varchar(55), \
    p_mfgr char(25), p_brand char(10), p_type varchar(25), p_size int, p_container char(10), \
    p_retailprice numeric(15,2), p_comment varchar(23))";

const INDEX_PART: &str = "ALTER TABLE part ADD PRIMARY KEY (p_partkey)";

const CREATE_LINEITEM: &str = "CREATE TABLE lineitem (l_orderkey bigint NOT NULL, \
    l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber int NOT NULL, \
    l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_discount numeric(15,2), \
    l_tax numeric(15,2), l_returnflag char(1), l_linestatus char(1), l_shipdate date, \
    l_commitdate date, l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10), \
    l_comment varchar(44))";

const INDEX_LINEITEM: &str = "ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber); \
     CREATE INDEX lineitem_part ON lineitem (l_partkey)";

/// Q17 with the parameters of the specification's validation run (clause
/// 2.4.17.3), and the loop.
const ROUTINES: &str = "
CREATE FUNCTION q17() RETURNS numeric LANGUAGE sql STABLE AS $$
  SELECT sum(l_extendedprice) / 7.0 AS avg_yearly
    FROM lineitem, part
   WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
     AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
$$;
CREATE PROCEDURE q17_loop() LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM q17();
    COMMIT;
    RAISE NOTICE 'q17';
  END LOOP;
END
$$";

/// Loads both tables and makes the routines.
pub(super) fn load(session: &Session, spec: &DatasetSpec, progress: Progress<'_>) -> Result<()> {
    progress(&format!("loading TPC-H, scale {}", spec.tpch_scale));
    let generator = PartGenerator::new(spec.tpch_scale, 1, 1);
    let mut parts = generator.iter();
    writer::load(session, "part", CREATE_PART, INDEX_PART, |rows| {
        let Some(part) = parts.next() else {
            return false;
        };
        rows.field(part.p_partkey)
            .field(part.p_name)
            .field(part.p_mfgr)
            .field(part.p_brand);
        rows.field(part.p_type)
            .field(part.p_size)
            .field(part.p_container);
        rows.field(part.p_retailprice).field(part.p_comment).end();
        true
    })?;
    let generator = LineItemGenerator::new(spec.tpch_scale, 1, 1);
    let mut lines = generator.iter();
    writer::load(
        session,
        "lineitem",
        CREATE_LINEITEM,
        INDEX_LINEITEM,
        |rows| {
            let Some(line) = lines.next() else {
                return false;
            };
            rows.field(line.l_orderkey)
                .field(line.l_partkey)
                .field(line.l_suppkey);
            rows.field(line.l_linenumber)
                .field(line.l_quantity)
                .field(line.l_extendedprice);
            rows.field(line.l_discount)
                .field(line.l_tax)
                .field(line.l_returnflag);
            rows.field(line.l_linestatus)
                .field(line.l_shipdate)
                .field(line.l_commitdate);
            rows.field(line.l_receiptdate)
                .field(line.l_shipinstruct)
                .field(line.l_shipmode);
            rows.field(line.l_comment).end();
            true
        },
    )?;
    session.execute("creating Q17", ROUTINES)
}
