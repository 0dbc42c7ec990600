//! Tables of runs: flows, queues, series and events, as CSV and as Parquet from one description, so that the two agree.
//!
//! Series and events are in long form, one value per row, since runs differ in what they record. Every row names its run by
//! scenario, host, sweep point and seed; columns carry their unit in the name. Parquet is written without Arrow, in row groups:
//! memory does not grow with the run.

use crate::figure::point;
use narrows_lab::Outcome;
use narrows_lab::outcome::Quantiles;
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows of a Parquet row group.
const GROUP: usize = 1 << 16;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// A flow of a run.
    Flows,
    /// A queue of a run.
    Queues,
    /// A value of a series.
    Series,
    /// An event.
    Events,
}

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
enum Cell<'a> {
    Text(Cow<'a, str>),
    Whole(u64),
    Real(f64),
    Truth(bool),
}

use Cell::{Real, Truth, Whole};

fn text(words: &str) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(words))
}

type Rows<'a> = Box<dyn Iterator<Item = Vec<Cell<'a>>> + 'a>;

const RUN: &str = "scenario:text host:text point:text seed:whole";

impl Table {
    /// All tables.
    pub const ALL: [Table; 4] = [Table::Flows, Table::Queues, Table::Series, Table::Events];

    /// Its name, and that of its file without the ending.
    pub fn name(self) -> &'static str {
        match self {
            Table::Flows => "flows",
            Table::Queues => "queues",
            Table::Series => "series",
            Table::Events => "events",
        }
    }

    /// Names and types of the columns, in order.
    fn columns(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = match self {
            Table::Flows => {
                "flow:text controller:text goodput_bps:real delivered_bytes:whole started_at_s:real \
                 finished_at_s:real completed:truth segments_sent:whole retransmissions:whole retransmit_ratio:real \
                 rto_count:whole fast_retransmits:whole ecn_reductions:whole lost:whole stall_time_s:real stalls:whole rtt_min_s:real \
                 rtt_p05_s:real rtt_p50_s:real rtt_p95_s:real rtt_p99_s:real rtt_max_s:real rtt_mean_s:real \
                 windows_from:text window_notice_p50_s:real window_notice_max_s:real"
            }
            Table::Queues => {
                "queue:text arrived:whole departed:whole departed_bytes:whole drops:whole drops_by_reason:text \
                 marks:whole utilisation:real backlog_max_bytes:whole delay_min_s:real delay_p05_s:real \
                 delay_p50_s:real delay_p95_s:real delay_p99_s:real delay_max_s:real delay_mean_s:real \
                 backlog_mean_packets:real acks_passed:whole windows_written:whole \
                 windows_unknown:whole acks_held:whole drop_ratio:real states_added:whole"
            }
            Table::Series => "subject:text quantity:text unit:text time_s:real value:real",
            Table::Events => "time_s:real flow:text kind:text value:real detail:text",
        };
        let named = |column: &'static str| column.split_once(':').expect("columns are written name:type");
        RUN.split_whitespace().chain(own.split_whitespace()).map(named)
    }

    fn rows(self, runs: &[Outcome]) -> Rows<'_> {
        Box::new(runs.iter().flat_map(move |run| {
            let point = point(run);
            let start = move || {
                vec![text(&run.name), text(&run.host), Cell::Text(point.clone().into()), Whole(run.seed)]
            };
            let own: Rows<'_> = match self {
                Table::Flows => Box::new(run.flows.iter().map(flow)),
                Table::Queues => Box::new(run.queues.iter().map(queue)),
                Table::Series => Box::new(run.series.iter().flat_map(|s| {
                    let cells =
                        |(t, v)| vec![text(&s.subject), text(&s.quantity), text(&s.unit), Real(t), Real(v)];
                    s.points.iter().copied().map(cells)
                })),
                Table::Events => Box::new(run.events.iter().map(event)),
            };
            own.map(move |own| {
                let mut row = start();
                row.extend(own);
                row
            })
        }))
    }

    /// Writes the table with a header. Numbers have as many digits as they need to be read back unchanged.
    pub fn csv(self, runs: &[Outcome], out: impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(self.columns().map(|(name, _)| name))?;
        for row in self.rows(runs) {
            for cell in &row {
                match cell {
                    Cell::Text(words) => csv.write_field(words.as_bytes())?,
                    Whole(n) => csv.write_field(n.to_string())?,
                    Real(x) => csv.write_field(x.to_string())?,
                    Truth(b) => csv.write_field(b.to_string())?,
                }
            }
            csv.write_record(None::<&[u8]>)?;
        }
        csv.flush()
    }

    /// Writes the table as Parquet, compressed with Snappy.
    pub fn parquet(self, runs: &[Outcome], out: impl Write + Send) -> io::Result<()> {
        self.write_parquet(runs, out).map_err(|e| match e {
            ParquetError::External(e) => e.downcast().map_or_else(io::Error::other, |e| *e),
            other => io::Error::other(other),
        })
    }

    fn write_parquet(self, runs: &[Outcome], out: impl Write + Send) -> ParquetResult<()> {
        let schema = Arc::new(parse_message_type(&self.schema())?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        let mut rows = self.rows(runs).peekable();
        while rows.peek().is_some() {
            let group: Vec<Vec<Cell>> = rows.by_ref().take(GROUP).collect();
            write_group(file.next_row_group()?, &group)?;
        }
        file.close().map(|_| ())
    }

    fn schema(self) -> String {
        let column = |(name, kind)| match kind {
            "text" => format!("required byte_array {name} (string);"),
            "whole" => format!("required int64 {name} (integer(64,false));"),
            "real" => format!("required double {name};"),
            _ => format!("required boolean {name};"),
        };
        format!("message {} {{ {} }}", self.name(), self.columns().map(column).collect::<String>())
    }
}

fn write_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    rows: &[Vec<Cell>],
) -> ParquetResult<()> {
    let mut column = 0;
    while let Some(mut writer) = group.next_column()? {
        let cells = rows.iter().map(|row| &row[column]);
        match writer.untyped() {
            ColumnWriter::ByteArrayColumnWriter(typed) => {
                let text = |cell: &Cell| {
                    if let Cell::Text(t) = cell { ByteArray::from(t.as_bytes().to_vec()) } else { unfit() }
                };
                typed.write_batch(&cells.map(text).collect::<Vec<_>>(), None, None)?;
            }
            ColumnWriter::Int64ColumnWriter(typed) => {
                let whole = |cell: &Cell| if let Whole(n) = cell { *n as i64 } else { unfit() };
                typed.write_batch(&cells.map(whole).collect::<Vec<_>>(), None, None)?;
            }
            ColumnWriter::DoubleColumnWriter(typed) => {
                let real = |cell: &Cell| if let Real(x) = cell { *x } else { unfit() };
                typed.write_batch(&cells.map(real).collect::<Vec<_>>(), None, None)?;
            }
            ColumnWriter::BoolColumnWriter(typed) => {
                let truth = |cell: &Cell| if let Truth(b) = cell { *b } else { unfit() };
                typed.write_batch(&cells.map(truth).collect::<Vec<_>>(), None, None)?;
            }
            _ => unfit(),
        }
        writer.close()?;
        column += 1;
    }
    group.close().map(|_| ())
}

/// [`Table::columns`] and [`Table::rows`] disagree.
fn unfit<T>() -> T {
    unreachable!("the rows of a table have the types of its columns")
}

fn flow(f: &narrows_lab::outcome::FlowSummary) -> Vec<Cell<'_>> {
    let mut row = vec![
        text(&f.name),
        text(&f.controller),
        Real(f.goodput_bps),
        Whole(f.delivered_bytes),
        Real(f.started_at_s),
        Real(f.finished_at_s),
        Truth(f.completed),
        Whole(f.segments_sent),
        Whole(f.retransmissions),
        Real(f.retransmit_ratio),
        Whole(f.rto_count),
        Whole(f.fast_retransmits),
        Whole(f.ecn_reductions),
        Whole(f.lost),
        Real(f.stall_time_s),
        Whole(f.stalls),
    ];
    row.extend(quantiles(&f.rtt));
    let writers: Vec<String> = f.windows_from.iter().map(|(queue, n)| format!("{queue}={n}")).collect();
    row.push(Cell::Text(writers.join(" ").into()));
    row.extend([f.window_notice.p50, f.window_notice.max].map(Real));
    row
}

fn queue(q: &narrows_lab::outcome::QueueSummary) -> Vec<Cell<'_>> {
    let reasons: Vec<String> = q.drops_by_reason.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
    let mut row = vec![
        text(&q.name),
        Whole(q.arrived),
        Whole(q.departed),
        Whole(q.departed_bytes),
        Whole(q.drops),
        Cell::Text(reasons.join(" ").into()),
        Whole(q.marks),
        Real(q.utilisation),
        Whole(q.backlog_max_bytes),
    ];
    row.extend(quantiles(&q.delay));
    row.push(Real(q.backlog_mean_packets));
    row.extend([q.acks_passed, q.windows_written, q.windows_unknown, q.acks_held].map(Whole));
    row.extend([Real(q.drop_ratio), Whole(q.states_added)]);
    row
}

fn quantiles(q: &Quantiles) -> [Cell<'static>; 7] {
    [q.min, q.p05, q.p50, q.p95, q.p99, q.max, q.mean].map(Real)
}

fn event(e: &narrows_lab::outcome::Event) -> Vec<Cell<'_>> {
    vec![Real(e.time_s), text(&e.flow), text(e.kind.name()), Real(e.value), text(&e.detail)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    fn csv_of(table: Table, runs: &[Outcome]) -> String {
        let mut out = Vec::new();
        table.csv(runs, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_row_has_a_cell_of_the_right_type_for_every_column() {
        let runs = [specimen::run("trace", "reno", 60, 800, 1)];
        for table in Table::ALL {
            let kinds: Vec<&str> = table.columns().map(|(_, kind)| kind).collect();
            let kind = |cell: &Cell| match cell {
                Cell::Text(_) => "text",
                Whole(_) => "whole",
                Real(_) => "real",
                Truth(_) => "truth",
            };
            assert!(table.rows(&runs).count() > 0);
            for row in table.rows(&runs) {
                assert_eq!(row.iter().map(kind).collect::<Vec<_>>(), kinds, "{}", table.name());
            }
        }
    }

    #[test]
    fn csv_names_run_and_unit_in_every_row() {
        let runs = [specimen::run("trace", "reno", 60, 800, 7)];
        let csv = csv_of(Table::Series, &runs);
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some("scenario,host,point,seed,subject,quantity,unit,time_s,value"));
        let point = "\"flow.bulk.controller = reno, flow.bulk.window = 258000B\"";
        assert_eq!(lines.next(), Some(format!("trace,sim,{point},7,bulk,seq_sent,B,0,0").as_str()));
        let values: usize = runs[0].series.iter().map(|s| s.points.len()).sum();
        assert_eq!(csv.lines().count(), values + 1);
        assert!(csv_of(Table::Events, &runs).contains(",drop,"));
    }

    #[test]
    fn parquet_gives_back_what_csv_says() {
        // More than one row group.
        let runs: Vec<Outcome> =
            (1..=4).map(|seed| specimen::run("trace", "reno", 120, 8000, seed)).collect();
        let mut bytes = Vec::new();
        Table::Series.parquet(&runs, &mut bytes).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert!(reader.num_row_groups() > 1);
        let rows = reader.get_row_iter(None).unwrap();
        let csv = csv_of(Table::Series, &runs);
        let mut records = csv::Reader::from_reader(csv.as_bytes()).into_records();
        for row in rows {
            let (row, record) = (row.unwrap(), records.next().unwrap().unwrap());
            assert_eq!(row.get_string(2).unwrap(), &record[2]);
            assert_eq!(row.get_ulong(3).unwrap().to_string(), record[3]);
            assert_eq!(row.get_double(7).unwrap().to_string(), record[7]);
            assert_eq!(row.get_double(8).unwrap().to_string(), record[8]);
        }
        assert!(records.next().is_none());
    }

    #[test]
    fn a_table_without_rows_is_still_a_table() {
        let mut bytes = Vec::new();
        Table::Events.parquet(&[], &mut bytes).unwrap();
        assert_eq!(
            SerializedFileReader::new(bytes::Bytes::from(bytes))
                .unwrap()
                .metadata()
                .file_metadata()
                .num_rows(),
            0
        );
        assert_eq!(csv_of(Table::Events, &[]).lines().count(), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error() {
        let runs = [specimen::run("trace", "reno", 60, 800, 1)];
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let message = Table::Series.csv(&runs, full()).unwrap_err().to_string();
        assert!(message.contains("No space left"), "{message}");
        let message = Table::Series.parquet(&runs, full()).unwrap_err().to_string();
        assert!(message.contains("No space left"), "{message}");
    }
}
