//! The documents of a catalogue: what the examples of this crate and `darter-bench documents` measure.

/// A row of a catalogue with many small values, some 950 bytes of JSON.
pub fn row(n: u64) -> String {
    let reviews: Vec<String> = (0..4)
        .map(|m| {
            let text = "Works as described, arrived in two days.";
            let text = text.get(..20 + (n as usize + m as usize) % 20).unwrap_or(text);
            format!(
                "{{\"user\":\"user{}\",\"stars\":{},\"text\":\"{text}\",\"helpful\":{}}}",
                n * 7 + m,
                1 + (n + m) % 5,
                (n + m).is_multiple_of(2)
            )
        })
        .collect();
    format!(
        "{{\"id\":{},\"sku\":\"SKU-{:08}\",\"name\":\"Product number {n}\",\"brand\":\"Brand {}\",\"price\":{}.{:02},\
         \"currency\":\"EUR\",\"tags\":[\"kitchen\",\"steel\",\"sale{}\"],\"stock\":{{\"count\":{},\"warehouse\":\"W{}\",\
         \"reserved\":{}}},\"dimensions\":{{\"width\":{}.5,\"height\":{}.25,\"depth\":12.0}},\"created\":\"2026-0{}-17T12:00:00Z\",\
         \"active\":true,\"discount\":null,\"location\":{{\"lat\":52.{},\"lon\":13.{}}},\"reviews\":[{}]}}",
        100_000 + n,
        n * 31,
        n % 17,
        n % 90 + 10,
        n % 100,
        n % 9,
        n % 500,
        n % 7,
        n % 3,
        n % 40,
        n % 60,
        n % 9 + 1,
        100_000 + n * 13 % 900_000,
        200_000 + n * 17 % 800_000,
        reviews.join(","),
    )
}
