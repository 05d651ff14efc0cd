//! Advertisements and bids.

use std::fmt;

use placement::{Cell, Span};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor,
        value::{BorrowedStrDeserializer, MapAccessDeserializer},
    },
};

use super::{WireError, code};
use crate::version::Version;
use crate::{
    clock::CellTime,
    ids::{AuctionId, Incarnation, InstanceId},
};

/// A cell's advertisement, its full bid, and the answer to `.state`: the cell, and how long this is valid. Only for
/// writing; read with [`Envelope::parse`] and [`parse_cell`], so that the large part is parsed only if it is new.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advert {
    /// 1.
    pub v: Version,
    /// The auction that it bids in; none in an advertisement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auction: Option<AuctionId>,
    /// New each time the rep starts.
    pub incarnation: Incarnation,
    /// The ledger's version, which increases with every change of the cell's state.
    pub seq: u64,
    /// The cell's own monotonic clock.
    pub clock_ms: CellTime,
    /// How long it is valid after it is received; `"0s"` withdraws the cell.
    pub ttl: Span,
    /// The last 64 instance ids accepted, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<InstanceId>,
    /// For a draining cell: whether its rep was told to end, and waits for its grace period at most.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
}

/// A bid of a cell whose last advertisement is still accurate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bid {
    /// 1.
    pub v: Version,
    /// The auction that it bids in.
    pub auction: AuctionId,
    /// The cell.
    pub cell: String,
    /// As in the advertisement.
    pub incarnation: Incarnation,
    /// As in the advertisement.
    pub seq: u64,
    /// The cell's clock now.
    pub clock_ms: CellTime,
    /// Always true.
    pub unchanged: bool,
}

/// To every cell: asks for a bid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BidRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The auction.
    pub auction: AuctionId,
}

/// The part of an advertisement or a bid that identifies its sender and version and says how long it is valid.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Envelope {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell's name.
    pub cell: String,
    /// The auction that it bids in.
    #[serde(default)]
    pub auction: Option<AuctionId>,
    /// New each time the rep starts.
    pub incarnation: Incarnation,
    /// The ledger's version.
    pub seq: u64,
    /// In a [`Change`](super::Change), the version on which it builds.
    #[serde(default)]
    pub since: Option<u64>,
    /// The cell's own monotonic clock.
    #[serde(default)]
    pub clock_ms: CellTime,
    /// How long it is valid; absent in a bid without changes.
    #[serde(default)]
    pub ttl: Option<Span>,
    /// The last accepted instance ids.
    #[serde(default)]
    pub recent: Vec<InstanceId>,
    /// Whether the last advertisement is still accurate; the message then contains no cell.
    #[serde(default)]
    pub unchanged: bool,
}

/// The most instance ids in [`Envelope::recent`].
const MAX_RECENT: usize = 64;

impl Envelope {
    /// Parses the envelope of a body, and checks its cell against the one in the subject, if there is one.
    pub fn parse(body: &[u8], subject_cell: Option<&str>) -> Result<Self, WireError> {
        let envelope: Self = super::error::read(body)?;
        envelope.check()?;
        match subject_cell {
            Some(cell) if cell != envelope.cell => Err(WireError {
                code: code::INVALID_REQUEST.into(),
                field: Some("cell".into()),
                message: format!(
                    "cell: {:?} advertised on the subject of {cell:?}",
                    envelope.cell
                ),
            }),
            _ => Ok(envelope),
        }
    }

    pub(super) fn check(&self) -> Result<(), WireError> {
        placement::check_name("cell", &self.cell)?;
        if self.recent.len() > MAX_RECENT {
            let ids = self.recent.len();
            let message = format!("recent: {ids} ids; expected at most {MAX_RECENT}");
            return Err(WireError::new(code::INVALID_REQUEST, message));
        }
        Ok(())
    }
}

/// Parses and checks the cell of an advertisement or a full bid. Apps without instances are dropped.
pub fn parse_cell(body: &[u8]) -> Result<Cell, WireError> {
    checked(super::error::read(body)?)
}

fn checked(mut cell: Cell) -> Result<Cell, WireError> {
    cell.check()?;
    let apps = &mut cell.counts.apps;
    // usually there is none
    if apps.values().any(|count| *count == 0) {
        apps.retain(|_, count| *count > 0);
    }
    Ok(cell)
}

/// An advertisement or a full bid, as read by [`CellReport::read`].
#[derive(Clone, Debug, PartialEq)]
pub struct CellReport<'r> {
    /// The result of [`Envelope::parse`].
    pub envelope: Envelope,
    /// The result of [`parse_cell`], without its apps.
    pub cell: Cell,
    /// Its apps, sorted by name without repetition, each with instances.
    pub apps: Vec<(&'r str, u32)>,
}

impl<'r> CellReport<'r> {
    /// Reads a report in a single pass, instead of one each for [`Envelope::parse`] and [`parse_cell`], and without
    /// copying the names of apps. None if anything about it is unusual: then those two read it or report what is wrong.
    /// `recent` stays empty unless requested: it is half of the message of a cell under load, and reading it is a
    /// quarter of the work.
    pub fn read(body: &'r [u8], recent: bool) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let mut json = serde_json::Deserializer::from_str(text);
        let mut report = json.deserialize_map(ReportVisitor { recent }).ok()?;
        json.end().ok()?;
        report.cell.check().ok()?;
        let apps = &mut report.apps;
        let named = |(name, _): &(&str, u32)| placement::check_name("apps", name).is_ok();
        let in_order = apps.is_sorted_by(|(a, _), (b, _)| a < b);
        if report.envelope.recent.len() > MAX_RECENT || !in_order || !apps.iter().all(named) {
            return None;
        }
        apps.retain(|(_, count)| *count > 0);
        report.envelope.cell.clone_from(&report.cell.cell);
        Some(report)
    }
}

/// What a report seems to be; see [`likely_version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LikelyVersion {
    /// The version of the cell's state.
    pub seq: u64,
    /// Whether it is a [`Change`](super::Change).
    pub is_change: bool,
}

/// Returns the version of the cell's state in an advertisement or a bid, if it is where our own programs write it.
/// Found without parsing the message, so it may be wrong: only for choosing how to read it.
pub fn likely_version(body: &[u8]) -> Option<LikelyVersion> {
    const NAME: &[u8] = b"\"seq\":";
    // it is preceded by the version, an auction and an incarnation
    let start = &body[..body.len().min(200)];
    let at = start.windows(NAME.len()).position(|bytes| bytes == NAME)?;
    let value = &start[at + NAME.len()..];
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit());
    let (mut seq, mut length) = (0_u64, 0);
    for digit in digits {
        seq = seq.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        length += 1;
    }
    Some(LikelyVersion {
        seq,
        is_change: value[length..].starts_with(b",\"since\":"),
    })
}

struct ReportVisitor {
    recent: bool,
}

impl<'de> Visitor<'de> for ReportVisitor {
    type Value = CellReport<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CellReport<'de>, A::Error> {
        let mut fields = Fields {
            map,
            recent: self.recent,
            envelope: EnvelopeFields::default(),
            apps: None,
        };
        let cell = Cell::deserialize(MapAccessDeserializer::new(&mut fields))?;
        let read = fields.envelope;
        let missing = A::Error::missing_field;
        let envelope = Envelope {
            v: Version,
            cell: String::new(),
            auction: read.auction.flatten(),
            incarnation: read.incarnation.ok_or_else(|| missing("incarnation"))?,
            seq: read.seq.ok_or_else(|| missing("seq"))?,
            since: None,
            clock_ms: read.clock_ms.unwrap_or_default(),
            ttl: read.ttl.flatten(),
            recent: read.recent.unwrap_or_default(),
            unchanged: read.unchanged.unwrap_or_default(),
        };
        Ok(CellReport {
            envelope,
            cell,
            apps: fields.apps.map(|Apps(apps)| apps).unwrap_or_default(),
        })
    }
}

/// The fields of an [`Envelope`] that have been read.
#[allow(clippy::option_option)] // not there, null, or a value: each may stand once
#[derive(Default)]
struct EnvelopeFields {
    v: Option<Version>,
    auction: Option<Option<AuctionId>>,
    incarnation: Option<Incarnation>,
    seq: Option<u64>,
    clock_ms: Option<CellTime>,
    ttl: Option<Option<Span>>,
    recent: Option<Vec<InstanceId>>,
    unchanged: Option<bool>,
}

/// Apps whose names are not copied.
struct Apps<'r>(Vec<(&'r str, u32)>);

impl<'de> Deserialize<'de> for Apps<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AppsVisitor)
    }
}

struct AppsVisitor;

impl<'de> Visitor<'de> for AppsVisitor {
    type Value = Apps<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Apps<'de>, A::Error> {
        let mut apps = Vec::new();
        while let Some(entry) = map.next_entry()? {
            apps.push(entry);
        }
        Ok(Apps(apps))
    }
}

/// The fields of a report. Those of the envelope and the apps are kept, and the others are passed to the cell.
struct Fields<'r, A> {
    map: A,
    /// Whether to read the list of recent ids.
    recent: bool,
    envelope: EnvelopeFields,
    apps: Option<Apps<'r>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for &mut Fields<'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Fields {
            map,
            recent,
            envelope,
            apps,
        } = &mut **self;
        while let Some(name) = map.next_key::<&'de str>()? {
            match name {
                "v" => once(&mut envelope.v, map)?,
                "auction" => once(&mut envelope.auction, map)?,
                "incarnation" => once(&mut envelope.incarnation, map)?,
                "seq" => once(&mut envelope.seq, map)?,
                "clock_ms" => once(&mut envelope.clock_ms, map)?,
                "ttl" => once(&mut envelope.ttl, map)?,
                "recent" if *recent => once(&mut envelope.recent, map)?,
                "recent" => drop(map.next_value::<IgnoredAny>()?),
                "unchanged" => once(&mut envelope.unchanged, map)?,
                "since" => return Err(A::Error::custom("a change")),
                "apps" => once(apps, map)?,
                other => {
                    let name = BorrowedStrDeserializer::new(other);
                    return seed.deserialize(name).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Reads a field that may occur only once.
fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field: &mut Option<T>,
    map: &mut A,
) -> Result<(), A::Error> {
    match field.replace(map.next_value()?) {
        None => Ok(()),
        Some(_) => Err(A::Error::custom("a field that stands twice")),
    }
}

#[cfg(test)]
mod tests {
    use placement::Resources;

    use super::*;
    use crate::version::VERSION;

    fn advert() -> Advert {
        let mut cell = Cell::new("c1", Resources::new(100, 100, 10));
        cell.counts.apps = [("b".to_owned(), 2), ("a".to_owned(), 1)].into();
        cell.attributes_mut().zone = "z9".into();
        Advert {
            v: VERSION,
            auction: Some(AuctionId::from_u128(7)),
            incarnation: Incarnation::from_u128(8),
            seq: 12,
            clock_ms: CellTime::from_ms(99),
            ttl: Span(std::time::Duration::from_secs(15)),
            recent: vec![InstanceId::from_u128(1), InstanceId::from_u128(2)],
            leaving: true,
            cell,
        }
    }

    #[test]
    fn one_pass_reads_what_two_read() {
        let whole = super::super::to_bytes(&advert());
        let whole = std::str::from_utf8(&whole).unwrap();
        let version = LikelyVersion {
            seq: 12,
            is_change: false,
        };
        assert_eq!(likely_version(whole.as_bytes()), Some(version));
        let mut read = 0;
        for (from, to) in [
            ("", ""),
            (r#""auction":"00000000-0000-0000-0000-000000000007","#, ""),
            (r#""clock_ms":99,"#, ""),
            (r#""ttl":"15s""#, r#""ttl":null"#),
            (r#""a":1"#, r#""a":0"#),
            (r#""a":1"#, r#""z":1,"a":1,"z":3"#),
            (r#""seq":12,"#, ""),
            (r#""seq":12"#, r#""seq":12,"seq":12"#),
            (r#""seq":12"#, r#""seq":"12""#),
            (r#""seq":12"#, r#""seq":12,"since":"12""#),
            (r#""v":1"#, r#""v":2"#),
            (r#""cell":"c1""#, r#""cell":"c.1""#),
            (r#""cell":"c1","#, ""),
            (r#""zone":"z9""#, r#""zone":"""#),
            (
                r#""zone":"z9""#,
                r#""zone":"z9","unchanged":true,"other":[{}]"#,
            ),
        ] {
            assert!(whole.contains(from), "{from}");
            let body = whole.replacen(from, to, 1);
            let apart = Envelope::parse(body.as_bytes(), None);
            let apart = apart.and_then(|e| Ok((e, parse_cell(body.as_bytes())?)));
            let Some(mut report) = CellReport::read(body.as_bytes(), true) else {
                // apps that are not sorted are read, too, but not in a single pass
                assert!(apart.is_err() || to.starts_with(r#""z""#), "{body}");
                continue;
            };
            read += 1;
            let apps = report.apps.iter();
            let mut cell = report.cell.clone();
            cell.counts.apps = apps.map(|(n, c)| ((*n).to_owned(), *c)).collect();
            assert_eq!(apart.unwrap(), (report.envelope.clone(), cell), "{body}");
            report.envelope.recent.clear();
            assert_eq!(CellReport::read(body.as_bytes(), false), Some(report));
        }
        assert_eq!(read, 6);
        assert_eq!(CellReport::read(b"[]", true), None);
        assert_eq!(CellReport::read(b"{\"cell\":\"\xff\"}", true), None);
        let mut many = advert();
        many.recent = (0..=64).map(InstanceId::from_u128).collect();
        assert_eq!(CellReport::read(&super::super::to_bytes(&many), true), None);
    }

    #[test]
    fn a_version_that_does_not_stand_in_its_place_is_not_found() {
        assert_eq!(likely_version(b"{}"), None);
        let late = format!("{}\"seq\":3", " ".repeat(200));
        assert_eq!(likely_version(late.as_bytes()), None);
        let seq = |body: &[u8]| likely_version(body).map(|version| version.seq);
        assert_eq!(seq(b"\"seq\":"), Some(0));
        assert_eq!(seq(b"{\"seq\":17,"), Some(17));
    }
}
