import torch, time
torch.manual_seed(0)
from allneg.kernels.l1 import reference as r1, gpu as g1
from allneg.kernels.modulus import reference as r2, gpu as g2
from measure import measure
dev=torch.device("cuda")
for (r,g,p) in ((r1,g1,1),(r2,g2,2)):
    for b,n,d in [(1,1,1),(5,33,3),(70,300,9),(3,700,16),(64,40,33),(33,270,100),(1000,14541,100)]:
        q,e,gr=(torch.randn(*s,device=dev) for s in ((b,d*p),(n,d*p),(b,n)))
        e[0]=q[0]
        s=g.scores(q,e); t=r.scores(q.double(),e.double())
        a=g.gradients(gr,q,e); bb=r.gradients(gr.double(),q.double(),e.double())
        a2=g.gradients(gr,q,e)
        print(p,(b,n,d),"%.1e"%((s-t).norm()/t.norm()).item(), ["%.1e"%((x-y).norm()/y.norm()).item() for x,y in zip(a,bb)], all(torch.equal(x,y) for x,y in zip(a,a2)))
        del q,e,gr,s,t,a,bb,a2
    for b,n,d in [(1000,14541,100),(1000,14541,1000),(1000,123182,500)]:
        q,e=(torch.randn(*s,device=dev) for s in ((b,d*p),(n,d*p)))
        ans=torch.randint(n,(b,),device=dev)
        from allneg.kernels.choose import compare
        def step():
            qq,ee=q.detach().requires_grad_(),e.detach().requires_grad_()
            torch.nn.functional.cross_entropy(compare(g,qq,ee)*0.05,ans).backward()
        sc=g.scores(q,e); gr=torch.softmax(sc*0.05,1)
        print("step",p,(b,n,d),measure(step,dev,0.3),"scores",measure(lambda:g.scores(q,e),dev,0.1).milliseconds,"grads",measure(lambda:g.gradients(gr,q,e),dev,0.1).milliseconds,flush=True)
        del q,e,sc,gr
