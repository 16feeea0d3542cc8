"""Run to_parquet on a real topic, which is then made anew; and the other two sinks."""
import json, subprocess, sys, random, sqlite3
from pathlib import Path
import pytest, confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from streamydb.local.jars import resolve
from streamydb.records.connect import connect_key
ROOT=Path("/work/wt/clients"); EX=ROOT/"examples/sinks"
def make(boot, name):
    a=AdminClient({"bootstrap.servers":boot})
    for f in a.create_topics([NewTopic(name,2,1)]).values(): f.result()
    return a
def produce(boot,name,keys):
    p=confluent_kafka.Producer({"bootstrap.servers":boot})
    for i,k in enumerate(keys):
        v={"payload":{"op":"c","before":None,"after":{"key":k,"value":json.dumps(i),"version":i},"ts_ms":1,"source":{"seq":i},"transaction":{"id":"t","total_order":1}}}
        p.produce(name, json.dumps(v).encode(), key=connect_key(k), headers=[("streamydb", b"T %d %d"%(i,i))])
    assert p.flush(30)==0
def test_it(bootstrap, database, tmp_path):
    name=f"{database}.connect"
    a=make(bootstrap,name); produce(bootstrap,name,["a","b","__proto__"])
    submit=Path(sys.executable).with_name("spark-submit"); jars=",".join(map(str,resolve("pipeline")))
    import os, pyspark
    env={**os.environ,"SPARK_HOME":str(Path(pyspark.__file__).parent),"PYSPARK_PYTHON":sys.executable,"PYSPARK_DRIVER_PYTHON":sys.executable}
    cmd=[str(submit),"--master","local[2]","--jars",jars,str(EX/"to_parquet.py"),bootstrap,database,str(tmp_path/"changes")]
    d0=1
    def sink(cmd,wait):
        p=subprocess.Popen(cmd,cwd=tmp_path,stdout=subprocess.PIPE,stderr=subprocess.STDOUT,text=True)
        import time
        for _ in range(300):
            time.sleep(0.1)
            if wait(): break
        else:
            p.kill(); print(p.communicate()[0][-3000:]); assert False
        p.kill(); p.wait()
    import shutil
    shutil.copy(EX/"to_file.mjs",tmp_path)
    (tmp_path/"node_modules").symlink_to(next(Path("/root/.cache/streamydb").glob("clients-*/node_modules/kafkajs")).parent)
    sq=[sys.executable,str(EX/"to_sqlite.py"),bootstrap,database,str(tmp_path/"b.sqlite")]
    js=["node","to_file.mjs",bootstrap,database,str(tmp_path/"b.json")]
    def sqrows():
        try: return sorted(k for k, in sqlite3.connect(tmp_path/"b.sqlite").execute("select key from kv"))
        except sqlite3.OperationalError: return None
    def jsrows():
        f=tmp_path/"b.json"
        return sorted(json.loads(f.read_text())["rows"]) if f.exists() else None
    for c,r in ((sq,sqrows),(js,jsrows)): sink(c,lambda:r()==["__proto__","a","b"]); print("ok",c[0])
    for c,r in ((sq,sqrows),(js,jsrows)): 
        pass
    for f in a.delete_topics([name]).values(): f.result()
    import time; time.sleep(3)
    make(bootstrap,name); new=[f"n{i}" for i in range(40)]; produce(bootstrap,name,new)
    for c,r in ((sq,sqrows),(js,jsrows)): sink(c,lambda:r()==sorted(new)); print("ok anew",c[0])
    for f in a.delete_topics([name]).values(): f.result()
    time.sleep(3)
    make(bootstrap,name); produce(bootstrap,name,["z"])
    for c,r in ((sq,sqrows),(js,jsrows)): sink(c,lambda:r()==["z"]); print("ok shorter",c[0])
    d=subprocess.run(cmd,capture_output=True,text=True,env=env); print(d.stdout[-2000:], d.stderr[-3000:]); assert d.returncode==0
    from pyarrow import parquet
    assert [r["key"] for r in parquet.read_table(tmp_path/"changes").to_pylist()]==["z"]
    for f in a.delete_topics([name]).values(): f.result()
    time.sleep(3); make(bootstrap,name); produce(bootstrap,name,["q","r"])
    d=subprocess.run(cmd,capture_output=True,text=True,env=env); print(d.stderr[-300:]); assert d.returncode==1 and "made anew" in d.stderr
