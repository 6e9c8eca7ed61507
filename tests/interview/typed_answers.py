"""Answers as people type them, right ones and wrong ones that no author listed.

``TYPED`` holds lines for questions whose answer is written out, ``CHOSEN`` those that name what the
card shows: ``{key}`` stands for the number or letter of an option, an item or a right side.
"""

from typing import NamedTuple


class Lines(NamedTuple):
    """Lines that are right, and lines that are wrong, for the card that seed 0 draws."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]


TYPED = {
    "bytes-of-a-tensor": Lines(
        ("168", "168 B", "168 bytes", "84 * 2", "0.168 kB", "168 Byte", "1344 bits"),
        ("336", "1344", "84", "42 bytes", "168 bits", "168 kB"),
    ),
    "amp-break-even-memory": Lines(
        ("8", "8 GB", "8 gigabytes", "8e9 bytes", "8,000 MB", "2 * 4"),
        ("0", "4 GB", "32", "16", "8 MB"),
    ),
    "largest-finite": Lines(
        ("65504", "65,504", "65 504", "6.5504e4", "(2 - 2^-10) * 2^15", "= 65504.0", "0xFFE0"),
        ("65536", "65,535", "32768", "65520", "6.55e4", "inf", "2^16"),
    ),
    "fp16-smallest-two": Lines(
        (
            "2**-14; 2**-24",
            "6.1e-5; 5.96e-8",
            "6,1e-5; 5,96e-8",
            "2⁻¹⁴；2⁻²⁴",
            "0.000061, 0.0000000596",
            "6.1·10⁻⁵; 5.96·10⁻⁸",
            "1/16384, 1/16777216",
            "smallest normal: 2^-14; smallest subnormal: 2^-24",
        ),
        (
            "2**-15; 2**-24",
            "2**-14; 2**-25",
            "2**-24; 2**-14",
            "2**-14; 2**-10",
            "6.1e-4; 5.96e-8",
            "1.2e-38; 1.4e-45",
        ),
    ),
    "speed-up-of-the-whole-step": Lines(
        ("1.43", "1.43x", "10/7", "1.4 times", "1,43", "1/0.7", "x1.43", "1.4x"),
        ("1.6", "2x", "0.7", "1.5", "1.3", "1.2"),
    ),
    "zero-stages": Lines(
        (
            "592; 161.9; 90.2; 18.5",
            "592 GB; 161.875 GB; 90.1875 GB; 18.5 GB",
            "592, 162, 90.2, 18.5",
            "592；161,9；90,2；18,5",
            "DDP: 592; ZeRO-1: 161.9; ZeRO-2: 90.2; ZeRO-3: 18.5",
            "0.592 TB; 161.9 GB; 90.2 GB; 18500 MB",
        ),
        (
            "592; 18.5; 18.5; 18.5",
            "592; 305.25; 90.2; 18.5",
            "592; 161.9; 16.2; 18.5",
            "18.5; 90.2; 161.9; 592",
            "37; 161.9; 90.2; 18.5",
            "592; 161.9; 90.2; 90.2",
        ),
    ),
    "grad-scaler-defaults": Lines(
        (
            "65536; 2; 0.5; 2000",
            "2**16; 2; 1/2; 2000",
            "65,536; 2.0; .5; 2,000",
            "2^16, 2, 0.5, 2000",
            "65 536; 2; 0,5; 2 000",
            "65536; 2; ½; 2000",
            "65536, 2, 50 %, 2000",
        ),
        (
            "32768; 2; 0.5; 2000",
            "65536; 2; 2; 2000",
            "65536; 2; 0.5; 1000",
            "65536; 0.5; 2; 2000",
            "1024; 2; 0.5; 2000",
        ),
    ),
    "scale-before-the-scores": Lines(
        ("inf; 32768", "∞; 2^15", "Infinity, 32,768", "infinite; 32768.0", "inf; 3.2768e4"),
        ("65504; 32768", "262144; 32768", "inf; 4096", "inf; inf", "nan; 32768"),
    ),
    "dense-share": Lines(
        ("66", "66 %", "66.03%", "66,0 %", "66 percent", "≈ 66"),
        ("33 %", "132", "50", "33.0", "99.9"),
    ),
    "stochastic-rounding-odds": Lines(
        ("0.25", "1/4", "25 %", ".25", "¼", "0,25", "2**-2"),
        ("0.5", "0.75", "0", "1/3", "2/1024"),
    ),
    "uint8-zero-point": Lines(
        ("0.0157; 64", "4/255; 64", "0.01569; 64", "0,01569; 64", "1.569e-2, 64"),
        ("0.015625; 64", "0.0157; -64", "0.0157; 128", "4/256; 64", "0.0157; 0"),
    ),
    "int4-model-size": Lines(
        ("3.72", "3.7 GB", "3.72 GB", "3718.75 MB", "3.7", "3,72 GB", "7 * (4 + 16/64) / 8"),
        ("3.5", "28 GB", "4", "7", "3.6"),
    ),
    "scale-after-two-overflows": Lines(
        ("18", "2^18", "2**18", "2¹⁸", "$2^{18}$", "k = 2^18"),
        ("17", "2^17", "2^19", "2^20", "3^18", "2^18 + 1", "2^-18", "16"),
    ),
    "mxfp8-floor-scale": Lines(
        ("-7; 384", "−7; 384", "k = -7; 384", "-7, 3*2^7", "-7.0; 384.0", "2^-7; 384"),
        ("-7; 448", "1; 384", "-6; 192", "7; 384", "-8; 768", "2^-6; 384", "2^7; 384"),
    ),
    "ring-all-reduce-bytes": Lines(
        ("63", "63 GB", "63 gigabytes", "63000 MB", "2 * 7/8 * 36"),
        ("36", "31.5", "504", "72", "58.7"),
    ),
    "softmax-becomes-zero": Lines(
        ("92.9", "92.88", "92,9", "134 * ln(2)", "~92.9"),
        ("87.3", "92.2", "88.7", "4.85", "133"),
    ),
    "sigmoid-reaches-one": Lines(
        ("8.32", "8.3175", "8,32", "ln(2**12 - 1)", "about 8.3"),
        ("7.62", "6.93", "11.09", "16.6", "-8.32"),
    ),
    "pairs-for-a-margin": Lines(
        ("22", "22.0", "= 22", "22.", "44/2"),
        ("21", "5", "6", "11", "44"),
    ),
    "fp16-code-of-a-decimal": Lines(
        (
            "0x3ECD",
            "3ecd",
            "0011111011001101",
            "0 01111 1011001101",
            "0b0011_1110_1100_1101",
            "0-01111-1011001101",
            "0, 01111, 1011001101",
            "0ｘ3ＥＣＤ",
        ),
        ("0x3ECC", "0xBECD", "0x3F66", "0 01110 1011001101", "0x3FD9"),
    ),
    "in-place-and-autocast": Lines(
        (
            "torch.bfloat16 torch.float32 torch.float32",
            "bfloat16 float32 float32",
            "bf16, fp32, fp32",
            "BF16 FP32 FP32",
            "torch.bfloat16\ntorch.float32\ntorch.float32",
            "bfloat16 float float",
        ),
        (
            "bfloat16 bfloat16 float32",
            "bf16 bf16 bf16",
            "float32 float32 float32",
            "float16 float32 float32",
            "bfloat16 float32 bfloat16",
        ),
    ),
    "norm-of-fp16-gradients": Lines(
        ("inf 65536.0", "inf 65,536", "Inf, 65536", "∞ 2**16", "inf; 65536"),
        ("65536 65536", "inf inf", "65504 65536", "inf 16384", "nan 65536"),
    ),
    "tenth-plus-fifth": Lines(
        (
            "False True False True",
            "false true false true",
            "False, True, False, True",
            "[False, True, False, True]",
            "F T F T",
        ),
        (
            "False False False False",
            "True True True True",
            "False True True True",
            "False False False True",
            "False True False False",
        ),
    ),
}

CHOSEN = {
    "bce-under-autocast": Lines(
        ("{bce}", "{bce}.", "({bce})", "option {bce}", "#{bce}"),
        ("{ce}", "{mse}.", "{none}", "({ce})", "option {none}"),
    ),
    "skip-together": Lines(
        ("{sync}", "{sync})", "Option {sync}", "第 {sync} 项", "no. {sync}"),
        ("{speed}", "{scales}", "{bf16}.", "({speed})", "#{scales}"),
    ),
    "claim-3e-8-is-lost": Lines(
        ("{nearest}", " {nearest} ", "{nearest}.", "({nearest})", "number {nearest}"),
        ("{holds}", "{normal}", "{kept}", "({holds})", "{kept}."),
    ),
    "int8-beats-e4m3": Lines(
        ("{holds}", "{holds}.", "({holds})", "option {holds}", "#{holds}"),
        ("{float-wins}", "{equal}", "({equal})", "{float-wins}.", "option {equal}"),
    ),
    "fp4-values": Lines(
        (
            "{half} {one-half} {three} {six}",
            "{half},{one-half},{three},{six}",
            "{six}, {three}, {one-half} and {half}",
            "{half}{one-half}{three}{six}",
            "{half}; {one-half}; {three}; {six}",
            "({half}) ({one-half}) ({three}) ({six})",
        ),
        (
            "{half} {one-half} {three}",
            "{half} {one-half} {three} {six} {eight}",
            "{half} {quarter} {three} {six}",
            "{half} {one-half} {two-half} {three} {five} {six}",
            "all",
        ),
    ),
    "what-a-checkpoint-holds": Lines(
        (
            "{weights} {optimizer} {scaler} {random} {schedule}",
            "{weights}, {optimizer}, {scaler}, {random}, {schedule}",
            "{weights}{optimizer}{scaler}{random}{schedule}",
            "{schedule} + {random} + {scaler} + {optimizer} + {weights}",
            "{weights}、{optimizer}、{scaler}、{random} 和 {schedule}",
        ),
        (
            "{weights} {optimizer} {scale-only} {random} {schedule}",
            "{weights} {optimizer}",
            "{weights} {optimizer} {scaler} {random} {schedule} {casts}",
            "{weights} {optimizer} {scaler} {random}",
            "all",
        ),
    ),
    "precision-for-card": Lines(
        (
            "{fp16} {fp16} {fp32} {bf16} {bf16}",
            "{fp16}{fp16}{fp32}{bf16}{bf16}",
            "1{fp16} 2{fp16} 3{fp32} 4{bf16} 5{bf16}",
            "2-{fp16}, 1-{fp16}, 3-{fp32}, 5-{bf16}, 4-{bf16}",
            "1: {fp16}; 2: {fp16}; 3: {fp32}; 4: {bf16}; 5: {bf16}",
        ),
        (
            "{bf16} {fp16} {fp32} {bf16} {bf16}",
            "{fp16} {bf16} {fp32} {bf16} {bf16}",
            "{fp16} {fp16} {fp16} {bf16} {bf16}",
            "{fp16} {fp16} {fp32} {fp16} {bf16}",
            "{fp16} {bare} {fp32} {bf16} {bf16}",
        ),
    ),
    "amp-dtype-of-each": Lines(
        (
            "{fp32} {bf16} {bf16} {fp32} {fp32} {fp32}",
            "{fp32}{bf16}{bf16}{fp32}{fp32}{fp32}",
            "{fp32}, {bf16}, {bf16}, {fp32}, {fp32}, {fp32}",
            "1 {fp32}, 2 {bf16}, 3 {bf16}, 4 {fp32}, 5 {fp32}, 6 {fp32}",
            "{fp32}/{bf16}/{bf16}/{fp32}/{fp32}/{fp32}",
        ),
        (
            "{bf16} {bf16} {bf16} {fp32} {fp32} {fp32}",
            "{fp32} {fp32} {bf16} {fp32} {fp32} {fp32}",
            "{fp32} {bf16} {bf16} {bf16} {fp32} {fp32}",
            "{fp32} {bf16} {fp32} {fp32} {fp32} {fp32}",
            "{bf16} {bf16} {bf16} {bf16} {bf16} {bf16}",
            "{fp32} {bf16} {bf16} {fp32} {fp32} {bf16}",
        ),
    ),
    "stores-but-does-not-speed-up": Lines(
        ("{two}", "{two}.", "({two})", "option {two}", "#{two}"),
        ("{three}", "{one}", "{three}.", "({one})", "option {three}"),
    ),
    "mxfp4-nvfp4-match": Lines(
        (
            "{mx} {nv} {mx} {square}",
            "{mx}{nv}{mx}{square}",
            "1={mx} 2={nv} 3={mx} 4={square}",
            "4{square} 3{mx} 2{nv} 1{mx}",
            "{mx}; {nv}; {mx}; {square}",
        ),
        (
            "{nv} {mx} {mx} {square}",
            "{mx} {mx} {mx} {square}",
            "{mx} {nv} {none} {square}",
            "{mx} {nv} {mx} {none}",
            "{nv} {nv} {mx} {square}",
        ),
    ),
    "benchmark-order": Lines(
        (
            "{model} {optimizer} {warm} {sync} {steps} {read}",
            "{model}{optimizer}{warm}{sync}{steps}{read}",
            "{model} > {optimizer} > {warm} > {sync} > {steps} > {read}",
            "{model} → {optimizer} → {warm} → {sync} → {steps} → {read}",
            "1{model} 2{optimizer} 3{warm} 4{sync} 5{steps} 6{read}",
        ),
        (
            "{model} {optimizer} {sync} {warm} {steps} {read}",
            "{optimizer} {model} {warm} {sync} {steps} {read}",
            "{model} {optimizer} {warm} {sync} {read} {steps}",
            "{warm} {model} {optimizer} {sync} {steps} {read}",
            "{model} {optimizer} {warm} {steps} {sync} {read}",
        ),
    ),
    "amp-step-in-order": Lines(
        (
            "{zero} {forward} {backward} {unscale} {clip} {step} {update}",
            "{forward} {zero} {backward} {unscale} {clip} {step} {update}",
            "{zero}{forward}{backward}{unscale}{clip}{step}{update}",
            "{zero}, {forward}, {backward}, {unscale}, {clip}, {step}, {update}",
            "{zero} -> {forward} -> {backward} -> {unscale} -> {clip} -> {step} -> {update}",
        ),
        (
            "{zero} {forward} {backward} {clip} {unscale} {step} {update}",
            "{forward} {backward} {unscale} {clip} {step} {update} {zero}",
            "{zero} {forward} {backward} {unscale} {clip} {update} {step}",
            "{zero} {forward} {unscale} {backward} {clip} {step} {update}",
            "{zero} {forward} {backward} {unscale} {step} {clip} {update}",
        ),
    ),
    "order-of-a-rollout": Lines(
        (
            "{offline} {limits} {shadow} {canary} {ramp} {full}",
            "{limits} {offline} {shadow} {canary} {ramp} {full}",
            "{offline} {shadow} {limits} {canary} {ramp} {full}",
            "{limits}{offline}{shadow}{canary}{ramp}{full}",
            "{offline}, {limits}, {shadow}, {canary}, {ramp}, {full}",
        ),
        (
            "{offline} {limits} {canary} {shadow} {ramp} {full}",
            "{offline} {shadow} {canary} {limits} {ramp} {full}",
            "{shadow} {offline} {limits} {canary} {ramp} {full}",
            "{offline} {limits} {shadow} {ramp} {canary} {full}",
            "{canary} {offline} {limits} {shadow} {ramp} {full}",
        ),
    ),
    "order-of-a-keras-port": Lines(
        (
            "{policy} {layers} {output} {compile} {check} {fit}",
            "{policy} {layers} {output} {check} {compile} {fit}",
            "{policy}{layers}{output}{check}{compile}{fit}",
            "{policy}, {layers}, {output}, {compile}, {check}, {fit}",
            "{policy} > {layers} > {output} > {compile} > {check} > {fit}",
        ),
        (
            "{layers} {output} {policy} {compile} {check} {fit}",
            "{layers} {output} {compile} {policy} {check} {fit}",
            "{policy} {layers} {output} {compile} {fit} {check}",
            "{compile} {policy} {layers} {output} {check} {fit}",
            "{policy} {output} {layers} {compile} {check} {fit}",
        ),
    ),
    "update-called-twice": Lines(
        ("9", "line 9", "9.", "第9行", "L9", "8"),
        ("0", "7", "none", "line 4", "6"),
    ),
    "zero-grad-at-the-end": Lines(
        ("0", "none", "nothing", "no line", "没有"),
        ("10", "line 10", "7", "6", "1"),
    ),
    "halve-in-place": Lines(
        ("12", "line 12", "12.", "11", "第 12 行"),
        ("8", "6", "0", "none", "10"),
    ),
}
