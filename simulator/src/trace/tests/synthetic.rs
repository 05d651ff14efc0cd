//! A synthetic trace with the columns of the public openb traces: gpu nodes of several models, many small and some
//! long-lived pods, shares of gpus.

use std::fmt::Write as _;

use crate::random::{Distribution, Random};

/// The size of a synthetic trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Synthetic {
    /// Number of nodes.
    pub(super) nodes: u32,
    /// Number of pods.
    pub(super) pods: u32,
    /// Number of days over which the pods arrive.
    pub(super) days: u32,
    /// Determines every draw.
    pub(super) seed: u64,
}

impl Default for Synthetic {
    /// About as large as the public traces: 1,500 nodes, 8,000 pods over 150 days.
    fn default() -> Self {
        Self {
            nodes: 1_500,
            pods: 8_000,
            days: 150,
            seed: 1,
        }
    }
}

/// Kinds of nodes: cpu, memory, gpus, model, and their percentage.
const NODES: [(u32, u32, u32, &str, u64); 6] = [
    (96_000, 393_216, 0, "", 20),
    (96_000, 393_216, 2, "P100", 15),
    (64_000, 262_144, 2, "T4", 30),
    (96_000, 393_216, 8, "V100M16", 10),
    (96_000, 786_432, 8, "V100M32", 10),
    (128_000, 786_432, 8, "G2", 15),
];

/// Kinds of pods: cpu, memory, gpus, share of each, models, and their percentage.
const PODS: [(u32, u32, u32, u32, &str, u64); 8] = [
    (4_000, 15_258, 0, 0, "", 15),
    (16_000, 65_536, 0, 0, "", 5),
    (4_000, 15_258, 1, 250, "", 15),
    (6_000, 16_384, 1, 500, "", 15),
    (12_000, 16_384, 1, 1000, "", 30),
    (8_000, 30_517, 1, 1000, "V100M16|V100M32", 8),
    (32_200, 132_096, 4, 1000, "G2|V100M32", 7),
    (64_000, 262_144, 8, 1000, "", 5),
];

impl Synthetic {
    /// Returns the nodes' file.
    pub(super) fn nodes_csv(&self) -> String {
        let mut random = Random::new(self.seed).fork("nodes", 0);
        let mut csv = String::from("sn,cpu_milli,memory_mib,gpu,model\n");
        for i in 0..self.nodes {
            let kind = pick(NODES.iter().map(|kind| kind.4), &mut random);
            let (cpu, memory, gpus, model, _) = NODES[kind];
            // writing to a string does not fail
            let _ = writeln!(csv, "node-{i:04},{cpu},{memory},{gpus},{model}");
        }
        csv
    }

    /// Returns the pods' file. Half of the pods live for months, the others for hours.
    pub(super) fn pods_csv(&self) -> String {
        let root = Random::new(self.seed);
        let (mut random, mut lives) = (root.fork("pods", 0), root.fork("lives", 0));
        let long = lognormal(80 * 86_400, 0.8);
        let short = lognormal(2 * 3_600, 1.5);
        let mut csv = String::from(
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,\
             deletion_time,scheduled_time\n",
        );
        let end = u64::from(self.days) * 86_400;
        let mut times: Vec<u64> = (0..self.pods).map(|_| random.below(end.max(1))).collect();
        times.sort_unstable();
        for (i, created) in times.into_iter().enumerate() {
            let kind = pick(PODS.iter().map(|kind| kind.5), &mut random);
            let (cpu, memory, gpus, share, models, _) = PODS[kind];
            let life = if lives.chance(0.5) { long } else { short };
            let deleted = created + life.sample(&mut lives).as_secs().max(1);
            let _ = writeln!(
                csv,
                "pod-{i:04},{cpu},{memory},{gpus},{share},{models},LS,Running,{created},{deleted},{created}"
            );
        }
        csv
    }
}

fn lognormal(median_s: u64, sigma: f64) -> Distribution {
    Distribution::Lognormal {
        median: std::time::Duration::from_secs(median_s),
        sigma,
    }
}

/// Draws a place in a list of weights that add up to a hundred.
fn pick(weights: impl Iterator<Item = u64>, random: &mut Random) -> usize {
    let mut point = random.below(100);
    let mut place = 0;
    for weight in weights {
        if point < weight {
            break;
        }
        point -= weight;
        place += 1;
    }
    place
}
