//! Geo: the digits of Redis, every option, and searches against a plain walk over all members.

use darter_wire::OwnedArgs;

use darter_base::rng::Rng;

use super::cell::CellPlace;
use super::shape::{GeoShape, distance};
use crate::testing::Bed;

fn sicily() -> Bed {
    let mut bed = Bed::new();
    let line = "GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";
    assert_eq!(bed.run(line), ":2");
    bed
}

#[test]
fn digits_are_those_of_redis() {
    let mut bed = sicily();
    assert_eq!(bed.run("GEODIST Sicily Palermo Catania"), "$11|166274.1516");
    assert_eq!(bed.run("GEODIST Sicily Palermo Catania km"), "$8|166.2742");
    assert_eq!(bed.run("GEODIST Sicily Palermo Catania MI"), "$8|103.3182");
    assert_eq!(bed.run("GEODIST Sicily Palermo nobody"), "$-1");
    assert_eq!(bed.run("GEOHASH Sicily Palermo nobody Catania"), "*3|$11|sqc8b49rny0|$-1|$11|sqdtr74hyu0");
    assert_eq!(
        bed.run("GEOPOS Sicily Palermo x"),
        "*2|*2|$20|13.36138933897018433|$20|38.11555639549629859|*-1"
    );
    assert_eq!(
        bed.run("GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST WITHHASH WITHCOORD"),
        "*2|*4|$7|Catania|$7|56.4413|:3479447370796909|*2|$20|15.08726745843887329|$20|37.50266842333162032\
         |*4|$7|Palermo|$8|190.4424|:3479099956230698|*2|$20|13.36138933897018433|$20|38.11555639549629859"
    );
    bed.resp3 = true;
    assert_eq!(bed.run("GEOPOS Sicily Palermo x"), "*2|*2|,13.36138933897018433|,38.11555639549629859|_");
}

#[test]
fn searches_take_every_option() {
    let mut bed = sicily();
    bed.run("GEOADD Sicily 12.758489 38.788135 edge1 17.241510 38.788135 edge2");
    assert_eq!(
        bed.run("GEOSEARCH Sicily FROMLONLAT 15 37 BYBOX 400 400 km ASC"),
        "*4|$7|Catania|$7|Palermo|$5|edge2|$5|edge1"
    );
    assert_eq!(bed.run("GEOSEARCH Sicily FROMMEMBER Palermo BYRADIUS 100 km DESC"), "*2|$5|edge1|$7|Palermo");
    assert_eq!(bed.run("GEOSEARCH Sicily FROMLONLAT 15 37 BYBOX 400 400 km COUNT 1"), "*1|$7|Catania");
    assert_eq!(bed.run("GEORADIUS Sicily 15 37 100 km"), "*1|$7|Catania");
    assert_eq!(bed.run("GEORADIUSBYMEMBER Sicily Catania 1 m WITHDIST"), "*1|*2|$7|Catania|$6|0.0000");
    assert_eq!(bed.run("GEORADIUS_RO Sicily 15 37 100 km STORE d"), "-ERR syntax error");
    assert_eq!(
        bed.run("GEOSEARCH Sicily FROMLONLAT 15 37 BYPOLYGON 4 12 38 14 38 14 39 12 39 ASC"),
        "*2|$7|Palermo|$5|edge1"
    );
    assert_eq!(
        bed.run("GEOSEARCH Sicily BYPOLYGON 3 15 37 16 38 14 38 WITHDIST"),
        "*1|*2|$7|Catania|$10|20084.1927"
    );
    bed.events();
    assert_eq!(bed.run("GEOSEARCHSTORE d Sicily FROMLONLAT 15 37 BYBOX 400 400 km COUNT 2 STOREDIST"), ":2");
    assert_eq!(bed.run("ZRANGE d 0 -1"), "*2|$7|Catania|$7|Palermo");
    assert_eq!(bed.run("GEORADIUS Sicily 15 37 200 km STORE e"), ":2");
    assert_eq!(bed.run("ZSCORE e Palermo"), "$16|3479099956230698");
    assert_eq!(bed.run("GEORADIUS Sicily 0 0 1 km STORE e"), ":0");
    assert_eq!(bed.run("GEORADIUSBYMEMBER nokey nobody 1 km STOREDIST d"), ":0");
    let events = bed.events();
    let stores = ["geosearchstore d", "georadiusstore e", "del e", "del d"];
    assert!(stores.iter().all(|store| events.iter().any(|event| event == store)), "{events:?}");
    assert_eq!(bed.run("EXISTS d e"), ":0");
}

#[test]
fn scores_that_no_place_has_are_searched_as_in_redis() {
    let mut bed = Bed::new();
    bed.run("ZADD k -1 2");
    bed.run("GEOADD k -12 69 m0 31 -59 m3 -13 -12 6");
    assert_eq!(bed.run("GEOSEARCH k FROMMEMBER 2 BYRADIUS 5000 km ASC COUNT 1 WITHHASH"), "*0");
}

#[test]
fn errors_are_those_of_redis() {
    let mut bed = sicily();
    for (line, error) in [
        ("GEOADD k 181 0 m", "-ERR invalid longitude,latitude pair 181.000000,0.000000"),
        ("GEOADD k x 0 m", "-ERR value is not a valid float"),
        ("GEOADD k NX XX 1 1 m", "-ERR syntax error"),
        ("GEOADD k 1 1 m 2", "-ERR syntax error"),
        ("GEODIST Sicily a b x", "-ERR unsupported unit provided. please use M, KM, FT, MI"),
        ("GEORADIUS Sicily 1 1 -1 km", "-ERR radius cannot be negative"),
        ("GEORADIUS Sicily 1 1 x km", "-ERR need numeric radius"),
        ("GEORADIUS Sicily 1 1 1 km COUNT 0", "-ERR COUNT must be > 0"),
        ("GEORADIUS Sicily 1 1 1 km ANY", "-ERR the ANY argument requires COUNT argument"),
        (
            "GEORADIUS Sicily 1 1 1 km STORE d WITHDIST",
            "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("GEORADIUSBYMEMBER Sicily nobody 1 km", "-ERR could not decode requested zset member"),
        ("GEORADIUSBYMEMBER nokey nobody 1 km", "*0"),
        (
            "GEOSEARCH Sicily BYRADIUS 1 km ASC WITHDIST",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        (
            "geosearch Sicily FROMLONLAT 1 1 ASC WITHDIST",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for geosearch",
        ),
        ("GEOSEARCH Sicily FROMLONLAT 1 1 FROMMEMBER Palermo BYRADIUS 1 km", "-ERR syntax error"),
        ("GEOSEARCH Sicily FROMLONLAT 1 1 BYBOX -1 1 km", "-ERR height or width cannot be negative"),
        (
            "GEOSEARCH Sicily FROMLONLAT 1 1 BYPOLYGON 2 1 1 2 2",
            "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices",
        ),
        (
            "GEOSEARCH Sicily FROMLONLAT 1 1 BYPOLYGON 9223372036854775807 1 1",
            "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices",
        ),
        (
            "GEOSEARCH Sicily BYPOLYGON 4 1 1 2 2 3 3",
            "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices",
        ),
        ("GEOSEARCH Sicily BYPOLYGON 3 1 1 2 2 3 3 FROMLONLAT 1 1", "-ERR syntax error"),
        ("GEOSEARCH Sicily FROMMEMBER Palermo BYPOLYGON 3 1 1 2 2 3 3", "-ERR syntax error"),
    ] {
        assert_eq!(bed.run(line), error, "{line}");
    }
}

#[test]
fn cells_cover_every_shape() {
    let mut rng = Rng::new(3);
    let mut place =
        || CellPlace { longitude: rng.unit_f64() * 360.0 - 180.0, latitude: rng.unit_f64() * 160.0 - 80.0 };
    for round in 0..4000 {
        let (center, other) = (place(), place());
        // Halving distances repeatedly, so that near and far places occur.
        let part = 0.5_f64.powi(round % 12);
        let other = CellPlace {
            longitude: center.longitude + (other.longitude - center.longitude) * part,
            latitude: center.latitude + (other.latitude - center.latitude) * part,
        };
        let meters = distance(center, other);
        if meters > 2_000_000.0
            || (other.longitude - center.longitude).abs() > 30.0
            || center.latitude.abs() > 60.0
        {
            continue;
        }
        let shape = GeoShape::Circle { radius: meters * 1.01 };
        let score = other.score();
        assert!(shape.distance_within(center, other).is_some());
        let covers = shape.cells(center).into_iter().any(|cell| {
            let (from, to) = cell.scores();
            (from..to).contains(&score)
        });
        assert!(covers, "{center:?} {other:?} {meters}");
    }
}

#[test]
fn the_last_place_to_store_to_counts() {
    let words = ["georadius", "from", "0", "0", "1", "km", "STORE", "one", "STOREDIST", "two"];
    let args = OwnedArgs::from_slices(&words.map(str::as_bytes));
    let mut keys = Vec::new();
    super::search::GEORADIUS.spec.each_key(args.args(), &mut |at| keys.push(words[at]));
    assert_eq!(keys, ["from", "two"]);
}
