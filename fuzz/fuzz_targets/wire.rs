//! Any bytes are either a message or an error; an accepted request stays the same when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shared::wire::{self, StartBody};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(StartBody::One(one)) = wire::parse_start(bytes)
        && let Ok(parsed) = *one
    {
        let written = wire::to_bytes(&parsed.request);
        let Ok(StartBody::One(again)) = wire::parse_start(&written) else { panic!("an array") };
        assert_eq!(again.expect("what was written reads back").request, parsed.request);
    }
    if wire::Envelope::parse(bytes, None).is_ok() {
        let _ = wire::parse_cell(bytes);
    }
    macro_rules! read {
        ($($message:ident)*) => { $(let _ = wire::parse::<wire::$message>(bytes, &mut Vec::new());)* };
    }
    read!(StartReply StartReplies PlaceExtra Stop StopAnswer StopReply BidRequest CellStart Acceptance
        Instances InstancesAnswer Page PoolAnswer ExplainRequest ExplainAnswer Drain DrainAnswer Cordon CordonAnswer Logs
        LogsAnswer LogLine Event ErrorBody);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(indices) = wire::parse_indices(text, 1_000)
    {
        let mut sorted = indices;
        sorted.sort_unstable();
        sorted.dedup();
        let again = wire::parse_indices(&wire::format_indices(sorted.iter().copied()), 1_000);
        assert_eq!(again, Some(sorted));
    }
});
