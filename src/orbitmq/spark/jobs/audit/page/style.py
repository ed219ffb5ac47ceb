"""The style of a report's page: light, dark, print."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--ground:#fff;--card:#f6f7f9;--text:#1b2027;--soft:#5c6773;--line:#dde2e8;
--c0:#2f6fb3;--c1:#e08214;--c2:#3a9a5b;--c3:#b5477d;--c4:#7a63c4;--c5:#1f9aa8;--c6:#a68a1f;--c7:#8a949e}
@media (prefers-color-scheme:dark){:root{--ground:#14181d;--card:#1d232a;--text:#e6eaef;
--soft:#9aa6b2;--line:#333c46;
--c0:#5b9be0;--c1:#f0a04b;--c2:#5fbf80;--c3:#dd7cad;--c4:#a391e6;--c5:#4fc3d0;--c6:#cdb354;--c7:#78838f}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 48px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:0 0 4px}h3{font-size:14px;margin:20px 0 6px;color:var(--soft);font-weight:600}
section{margin-top:36px;padding-top:18px;border-top:1px solid var(--line)}
.sub,.note,footer{color:var(--soft)}.sub{margin:0 0 18px}.note{margin:0 0 12px;max-width:80ch}
footer{margin-top:36px;font-size:13px;border-top:1px solid var(--line)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.tiles b{display:block;font-size:22px;line-height:1.2;font-variant-numeric:tabular-nums}
.tiles span{color:var(--soft);font-size:13px}
figure{margin:0 0 12px}svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:12px}svg line{stroke:var(--line)}
.c0{fill:var(--c0);background:var(--c0)}.c1{fill:var(--c1);background:var(--c1)}
.c2{fill:var(--c2);background:var(--c2)}.c3{fill:var(--c3);background:var(--c3)}
.c4{fill:var(--c4);background:var(--c4)}.c5{fill:var(--c5);background:var(--c5)}
.c6{fill:var(--c6);background:var(--c6)}.c7{fill:var(--c7);background:var(--c7)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:8px 0 0;
padding:0 0 0 64px;font-size:13px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px}
.wide{overflow-x:auto}.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:0 28px}
.pair>div{min-width:0}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap}td{overflow-wrap:anywhere;min-width:4ch}
th.n,td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}.n+:not(.n){padding-left:18px}.none{color:var(--soft)}
@media print{:root{color-scheme:light;--ground:#fff;--card:#fff;--text:#000;--soft:#444;--line:#bbb;
--c0:#2f6fb3;--c1:#e08214;--c2:#3a9a5b;--c3:#b5477d;--c4:#7a63c4;--c5:#1f9aa8;--c6:#a68a1f;--c7:#8a949e}
main{max-width:none;padding:0}body{font-size:11pt}figure,tr,.tiles{break-inside:avoid}h2,h3{break-after:avoid}
.wide{overflow:visible}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
