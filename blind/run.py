import sys
from pathlib import Path
from tests import corpus
for s in corpus.read(Path("blind/02_number_formats.py")):
    if len(sys.argv) > 1 and s.exercise not in sys.argv[1:]: continue
    code = "\n".join(l for l in s.code.splitlines())
    try: a = s.answer()
    except Exception as e: print("!!", s.exercise, s.title, repr(e)); continue
    r = corpus._checks()[s.lab, s.exercise].result(a, seed=0)
    passed = r.status == "passed"
    flag = {("right",True):"ok", ("right",False):"REFUSED", ("wrong",True):"ACCEPTED", ("wrong",False):"refused"}[s.kind, passed]
    th = [l for l in s.code.splitlines() if "thinks:" in l]
    print(f"[{flag}] {s.kind} {s.exercise}: {s.title} | {th[0].split('thinks:')[1].strip() if th else ''}")
    if s.kind=="wrong" or not passed: print("     ", r.misconceptions, r.message.replace("\n","\n      "))
