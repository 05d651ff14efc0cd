//! Sets of devices, as options specify them and tables show them.

use placement::{DeviceNeed, DeviceSet, DeviceShares, Resources};

/// What `--devices` of a request expects.
const NEED: &str =
    "expected NAME=N, NAME=NxAMOUNT or either with :MODEL|MODEL, such as gpu=1x220:T4";
/// What `--devices` of a cell expects.
const SET: &str = "expected NAME=NxEACH or NAME=NxEACH:MODEL, such as gpu=8x1000:V100M32";

/// Parses an instance's need: `gpu=2` all of two devices, `gpu=1x220` this amount of one, `gpu=1x220:T4|P100` of these
/// models only.
pub(crate) fn need(text: &str) -> Result<(String, DeviceNeed), String> {
    let wrong = || format!("{text:?}: {NEED}");
    let (name, count, amount, models) = parts(text).ok_or_else(wrong)?;
    let amount = amount
        .map(str::parse::<i64>)
        .transpose()
        .map_err(|_| wrong())?;
    let mut need = DeviceNeed::new(count.parse().map_err(|_| wrong())?, amount);
    need.models = models
        .into_iter()
        .flat_map(|models| models.split('|'))
        .map(str::to_owned)
        .collect();
    Ok((name.to_owned(), need))
}

/// Parses a cell's set: `gpu=8x1000`, with its model `gpu=8x1000:V100M32`.
pub(crate) fn set(text: &str) -> Result<(String, DeviceSet), String> {
    let wrong = || format!("{text:?}: {SET}");
    let (name, count, each, model) = parts(text).ok_or_else(wrong)?;
    let each = each.and_then(|each| each.parse().ok()).ok_or_else(wrong)?;
    let mut set = DeviceSet::new(count.parse().map_err(|_| wrong())?, each);
    set.model = model.map(str::to_owned);
    Ok((name.to_owned(), set))
}

type Parts<'t> = (&'t str, &'t str, Option<&'t str>, Option<&'t str>);

/// Splits `NAME=NxAMOUNT:MODEL` into its parts.
fn parts(text: &str) -> Option<Parts<'_>> {
    let (name, rest) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
    let (amounts, model) = match rest.split_once(':') {
        Some((amounts, model)) => (amounts, Some(model)),
        None => (rest, None),
    };
    let (count, amount) = match amounts.split_once('x') {
        Some((count, amount)) => (count, Some(amount)),
        None => (amounts, None),
    };
    Some((name, count, amount, model))
}

/// Formats which devices are given: `gpu 0,3 (220 each)`; a dash if there are none.
pub(crate) fn given(shares: &DeviceShares) -> String {
    let one = |(name, share): (&String, &placement::DeviceShare)| {
        let numbers: Vec<String> = share.numbers.iter().map(u32::to_string).collect();
        format!("{name} {} ({} each)", numbers.join(","), share.amount)
    };
    let all: Vec<String> = shares.iter().map(one).collect();
    if all.is_empty() {
        return "-".into();
    }
    all.join("; ")
}

/// Formats what is free of a cell's devices: `gpu 5600/8000 (3 of 8 all free)`; a dash if there are none.
pub(crate) fn free(available: &Resources, total: &Resources) -> String {
    let one = |(name, all): (&String, &DeviceSet)| {
        let left = available.devices.get(name);
        let whole = left.map_or(0, |set| {
            let is_whole = |number: &u32| set.free(*number) == set.each;
            (0..set.count).filter(is_whole).count()
        });
        let (left, of) = (left.map_or(0, DeviceSet::sum_free), all.sum_free());
        format!("{name} {left}/{of} ({whole} of {} unused)", all.count)
    };
    let all: Vec<String> = total.devices.iter().map(one).collect();
    if all.is_empty() {
        return "-".into();
    }
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_and_sets_are_read_from_options() {
        let (name, whole) = need("gpu=2").unwrap();
        assert_eq!((name.as_str(), whole), ("gpu", DeviceNeed::new(2, None)));
        let mut share = DeviceNeed::new(1, Some(220));
        assert_eq!(need("gpu=1x220").unwrap().1, share);
        share.models = vec!["T4".into(), "P100".into()];
        assert_eq!(need("gpu=1x220:T4|P100").unwrap().1, share);
        let mut eight = DeviceSet::new(8, 1000);
        assert_eq!(set("gpu=8x1000").unwrap().1, eight);
        eight.model = Some("V100M32".into());
        assert_eq!(set("gpu=8x1000:V100M32").unwrap().1, eight);
        for text in ["gpu", "gpu=", "=2", "gpu=a", "gpu=2xa", "gpu=-1"] {
            assert!(
                need(text).unwrap_err().contains("such as gpu=1x220"),
                "{text}"
            );
        }
        for text in ["gpu", "gpu=8", "gpu=8x", "gpu=x1000", "=8x1000"] {
            assert!(
                set(text).unwrap_err().contains("such as gpu=8x1000"),
                "{text}"
            );
        }
    }

    #[test]
    fn devices_are_shown_with_their_numbers_and_what_is_free() {
        let share = placement::DeviceShare {
            amount: 220,
            numbers: vec![0, 3],
        };
        let shares = [("gpu".to_owned(), share)].into();
        assert_eq!(given(&shares), "gpu 0,3 (220 each)");
        assert_eq!(given(&DeviceShares::new()), "-");
        let mut total = Resources::default();
        assert_eq!(free(&total, &total), "-");
        total.devices.insert("gpu".into(), DeviceSet::new(3, 1000));
        let mut available = total.clone();
        assert_eq!(free(&available, &total), "gpu 3000/3000 (3 of 3 unused)");
        let set = DeviceSet {
            free: vec![780, 1000, -5],
            ..DeviceSet::new(3, 1000)
        };
        available.devices.insert("gpu".into(), set);
        assert_eq!(free(&available, &total), "gpu 1780/3000 (1 of 3 unused)");
    }
}
